"use strict";
// Sorting by the buttons in the headers: numbers by their value, what has none always last.
for (const table of document.querySelectorAll("table")) {
  const headers = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const numeric = header.classList.contains("n");
      const key = (row) => {
        const cell = row.cells[column];
        return numeric ? Number.parseFloat(cell.dataset.v) : cell.textContent;
      };
      const order = (a, b) => {
        if (!numeric) return (up ? 1 : -1) * a.localeCompare(b, "en", { numeric: true });
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return up ? a - b : b - a;
      };
      body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
    });
  });
}

// Filtering: a row stays that has all of the words.
for (const input of document.querySelectorAll(".filter input")) {
  const section = input.closest("section");
  const rows = [...section.querySelectorAll("tbody tr")];
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      left += row.hidden ? 0 : 1;
    }
    section.querySelector("output").textContent = words.length ? `${left} of ${rows.length}` : "";
  });
}
