"""Exact speculation: several codes from one pass over the layers, and the same bits as one code a pass.

==================  ===================================================================================
`decoder`           the decoder that drafts with later heads and verifies with one pass over several tokens
`drafted_frame`     what passes of a frame took in, and which of it held
`draft_length`      how many drafts each pass is given: what pays, within what may be lost
`acceptance`        counts: acceptance of each codebook, codes a pass, passes a frame
`offsets`           what draft heads add to the hidden state: fitted on recorded frames, kept beside the model
`judging`           the gate's part: drafters that are right, wrong, and wrong from some depth on
==================  ===================================================================================
"""
