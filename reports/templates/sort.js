"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const headers = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const said = document.createElement("p");
  said.className = "said";
  said.setAttribute("role", "status");
  table.parentNode.after(said);
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [JSON.parse(row.dataset.sort)[column], row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
        return up ? order : -order;
      });
      body.append(...rows.map(([, row]) => row));
      said.textContent = `Sorted by ${button.textContent}, ${up ? "ascending" : "descending"}.`;
    });
  });
}
