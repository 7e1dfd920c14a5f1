"""Exact speculation: several codes from one pass over the layers, and the same bits as one code a pass.

==================  ===================================================================================
`decoder`           the decoder that verifies drafts with one pass over several tokens
`drafter`           what drafts, and what that costs: the interface
`drafting_heads`    drafts by the model's own later heads
`drafting_model`    drafts by the same model in a format of fewer bytes, with a KV cache of its own
`drafted_frame`     what passes of a frame took in, and which of it held
`token_costs`       what passes over several tokens take beside one
`draft_length`      how many drafts each pass is given: what pays, within what may be lost
`acceptance`        counts: acceptance of each codebook, codes a pass, passes a frame
`offsets`           what draft heads add to the hidden state: fitted on recorded frames, kept beside the model
`judging`           the gate's part: drafters that are right, wrong, and wrong from some depth on
==================  ===================================================================================
"""
