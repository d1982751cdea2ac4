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

// figures of a section stand behind tabs; without this script, and on paper, one below the other
function tabs(group) {
  const figures = [...group.querySelectorAll("figure")], list = document.createElement("div");
  if (figures.length < 2) return;
  list.className = "tablist";
  list.setAttribute("role", "tablist");
  const select = (chosen) => figures.forEach((figure, i) => {
    figure.hidden = figure !== chosen;
    list.children[i].setAttribute("aria-selected", figure === chosen);
  });
  for (const figure of figures) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("role", "tab");
    button.textContent = figure.dataset.name;
    button.addEventListener("click", () => select(figure));
    list.append(button);
  }
  group.prepend(list);
  select(figures[0]);
}

// a link opens what it leads to
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  target.scrollIntoView();
  follow();
}

// the entry of the contents that is being read
function follow() {
  const links = [...document.querySelectorAll("nav a")];
  const sections = links.map((link) => document.getElementById(decodeURIComponent(link.hash.slice(1))));
  let last = sections.findLastIndex((section) => section && section.getBoundingClientRect().top < innerHeight / 3);
  const atEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 2; // a short last section cannot reach the top
  if (atEnd) last = Math.max(last, links.findIndex((link) => link.hash === location.hash));
  links.forEach((link, i) => (i === Math.max(last, 0) ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
}

const narrow = matchMedia("(max-width: 60rem)"), menu = document.querySelector(".menu");
const fold = () => (menu.open = !narrow.matches);
fold();
narrow.addEventListener("change", fold);
for (const link of document.querySelectorAll("a[href^='#']")) link.addEventListener("click", () => { if (link.hash === location.hash) reveal(); });
for (const link of menu.querySelectorAll("a")) link.addEventListener("click", fold);
for (const button of document.querySelectorAll("[data-fold]"))
  button.addEventListener("click", () => { for (const one of document.querySelectorAll(".section")) one.open = button.dataset.fold === "open"; });
document.querySelectorAll(".figures").forEach(tabs);
addEventListener("hashchange", reveal);
addEventListener("scroll", follow, { passive: true });
if (location.hash) reveal();
follow();

for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button.parentElement));
for (const field of document.querySelectorAll(".filter")) field.addEventListener("input", () => filter(field));
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
