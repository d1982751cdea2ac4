"use strict";
const cell = (row, column) => row.cells[column].textContent.trim();
const missing = (text) => ["", "–", "undeclared"].includes(text);
const isNumber = (text) => /^(≥ )?-?[\d.,]+(e[-+]?\d+)?( |%|$)/.test(text);
const number = (text) => (missing(text) ? NaN : parseFloat(text.replace(/,|≥ /g, "")));

function sort(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex, rows = [...body.rows];
  const said = rows.map((row) => cell(row, column)).filter((text) => !missing(text)), numeric = said.length > 0 && said.every(isNumber);
  const before = head.getAttribute("aria-sort"), descending = before ? before === "ascending" : numeric; // at first the largest number above
  const sign = descending ? -1 : 1;
  const compare = (a, b) => {
    if (!numeric) return sign * cell(a, column).localeCompare(cell(b, column), "en", { numeric: true });
    const x = number(cell(a, column)), y = number(cell(b, column));
    return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : sign * (x - y); // what is missing stays below
  };
  body.append(...rows.sort(compare));
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function filter(field) {
  const words = field.value.toLowerCase().split(/\s+/);
  for (const row of field.parentElement.querySelector("tbody").rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button.parentElement));
for (const field of document.querySelectorAll(".filter")) field.addEventListener("input", () => filter(field));
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
