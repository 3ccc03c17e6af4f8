/* A heading of a table of class hw-sortable becomes a button that sorts its rows: numbers as numbers, empty cells (a dash) last. Without this script
   it is a plain table. */
addEventListener("DOMContentLoaded", () => {
  const value = cell => {
    const text = cell.textContent.trim(), number = Number(text.replaceAll(",", ""));
    return text === "–" ? null : Number.isNaN(number) ? text : number;
  };
  const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
  const sort = (body, column, down) => {
    const rows = [...body.rows].map(row => ({row, key: value(row.cells[column])}));
    rows.sort((a, b) => a.key === null || b.key === null ? (a.key === null) - (b.key === null) : (down ? -1 : 1) * order(a.key, b.key));
    body.append(...rows.map(({row}) => row));
  };
  for (const table of document.querySelectorAll("table.hw-sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    table.createCaption().textContent = "Press a heading to sort by it, twice for the other way round.";
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table.tBodies[0], column, down);
      });
    });
  }
});
