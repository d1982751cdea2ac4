"use strict";
// Tables in a `.board` are sorted by their headings; one with `data-choose` has filters above it.
const cellText = (row, column) => row.cells[column].textContent.trim();
const missing = (text) => text === "" || text === "–";
const numberIn = (text) => (text.startsWith("never") ? Infinity : parseFloat(text.replace(/,|^[<≥] /g, "")));

function sortBy(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const said = [...body.rows].map((row) => cellText(row, column)).filter((text) => !missing(text));
  const numeric = said.length > 0 && said.every((text) => !isNaN(numberIn(text)));
  const before = head.getAttribute("aria-sort"), descending = before ? before === "ascending" : numeric;
  const compare = (a, b) => {
    const [x, y] = [cellText(a, column), cellText(b, column)];
    if (missing(x) || missing(y)) return missing(x) - missing(y); // what is missing stays below
    const [first, second] = descending ? [y, x] : [x, y];
    const apart = numeric ? numberIn(first) - numberIn(second) : 0;
    return apart || (numeric ? 0 : first.localeCompare(second, "en", { numeric: true }));
  };
  body.append(...[...body.rows].sort(compare));
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function makeSortable(table) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(head));
    head.append(button);
  }
}

function addFilters(board) {
  const table = board.querySelector("table"), bar = document.createElement("div");
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = `Filter by ${heads[0]}`;
  search.setAttribute("aria-label", search.placeholder);
  const choices = board.dataset.choose.split(", ").map((name) => {
    const column = heads.indexOf(name), choice = document.createElement("select");
    choice.name = name;
    choice.setAttribute("aria-label", `Choose a ${name}`);
    const values = new Set([...table.tBodies[0].rows].map((row) => cellText(row, column)));
    choice.append(new Option(`any ${name}`, ""), ...[...values].map((value) => new Option(value, value)));
    return { choice, column };
  });
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const named = words.every((word) => cellText(row, 0).toLowerCase().includes(word));
      row.hidden = !named || choices.some(({ choice, column }) => choice.value && choice.value !== cellText(row, column));
    }
  };
  bar.className = "choose";
  bar.append(search, ...choices.map(({ choice }) => choice));
  search.addEventListener("input", apply);
  for (const { choice } of choices) choice.addEventListener("change", apply);
  board.prepend(bar);
}

for (const board of document.querySelectorAll(".board")) {
  board.querySelectorAll("table").forEach(makeSortable);
  if (board.dataset.choose) addFilters(board);
}
