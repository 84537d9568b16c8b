/* The table of models: a button in each heading sorts by its column, a field above filters rows. */
"use strict";
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".models-table table")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const value = (row, column) => row.cells[column].textContent.trim();
    const number = (text) => parseFloat(text.replaceAll(",", ""));

    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = document.createElement("button");
      button.append(...heading.childNodes);
      heading.append(button);
      const numeric = rows.every((row) => !value(row, column) || !isNaN(number(value(row, column))));
      button.addEventListener("click", () => {
        const up = heading.ariaSort ? heading.ariaSort !== "ascending" : !numeric;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        const compare = (a, b) => numeric ? number(a) - number(b) : a.localeCompare(b);
        body.append(...[...rows].sort((one, two) => {
          const [a, b] = [value(one, column), value(two, column)];
          if (!a || !b) return !a - !b; // rows without a value stand last
          return up ? compare(a, b) : compare(b, a);
        }));
      });
    });

    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Filter: b16 i1k, dinov2, siglip 384";
    field.setAttribute("aria-label", "Show the models that have all of these words");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    table.closest(".models-table").before(field);
  }
});
