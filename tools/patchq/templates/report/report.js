(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("cells").textContent);
  var box = document.getElementById("cell");
  function put(id, text) { document.getElementById(id).textContent = text; }
  function open(td) {
    var table = td.closest("table"), m = data[table.dataset.m], tr = td.parentElement;
    var row = Number(tr.dataset.r), col = td.cellIndex - 1, at = (m.e[row] || {})[col];
    var found = at ? [m.s[at[0]], m.s[at[1]], at[2]] : ["", "", 0];
    put("cell-name", m.u + "/" + m.n[row] + " on " + m.r[col]);
    put("cell-outcome", td.textContent !== "–" ? td.textContent : "not known: patchq forecast " + m.u + " --onto " + m.r[col]);
    put("cell-said", found[0]);
    var link = document.getElementById("cell-file");
    link.hidden = !found[1];
    if (found[1]) { link.href = found[1]; link.textContent = decodeURI(found[1]) + (found[2] ? ", line " + found[2] : ""); }
    box.showModal(); // What had the focus has it again once the dialog is closed: the browser's own.
  }
  document.querySelectorAll("table.m").forEach(function (table) {
    var at = table.querySelector("tbody td");
    if (at) at.tabIndex = 0;
    function go(td) { if (!td || td.tagName !== "TD") return; if (at) at.tabIndex = -1; at = td; td.tabIndex = 0; td.focus(); }
    function step(tr, forward) {
      do { tr = forward ? tr.nextElementSibling : tr.previousElementSibling; } while (tr && tr.hidden);
      return tr;
    }
    table.addEventListener("click", function (e) { var td = e.target.closest("tbody td"); if (td) { go(td); open(td); } });
    table.addEventListener("keydown", function (e) {
      var td = e.target.closest("tbody td"), tr;
      if (!td) return;
      if (e.key === "Enter" || e.key === " ") open(td);
      else if (e.key === "ArrowRight") go(td.nextElementSibling);
      else if (e.key === "ArrowLeft") go(td.previousElementSibling);
      else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        tr = step(td.parentElement, e.key === "ArrowDown");
        if (tr) go(tr.cells[td.cellIndex]);
      } else return;
      e.preventDefault();
    });
  });
  document.querySelectorAll(".copy").forEach(function (button) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", function () {
      navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent).then(function () {
        button.textContent = "Copied";
      });
    });
  });
  // A table that is drawn as cards stays one to a screen reader.
  function roles(tables, cell) {
    tables.forEach(function (table) {
      if (!table.hasAttribute("role")) table.setAttribute("role", "table");
      table.querySelectorAll("thead,tbody,tfoot").forEach(function (x) { x.setAttribute("role", "rowgroup"); });
      table.querySelectorAll("tr").forEach(function (x) { x.setAttribute("role", "row"); });
      table.querySelectorAll("td").forEach(function (x) { x.setAttribute("role", cell); });
      table.querySelectorAll("th").forEach(function (x) { x.setAttribute("role", x.scope === "row" ? "rowheader" : "columnheader"); });
    });
  }
  if (matchMedia("(max-width:63.99rem)").matches) roles(document.querySelectorAll("table.cards"), "cell");
  if (matchMedia("(max-width:47.99rem)").matches) roles(document.querySelectorAll("table.m"), "gridcell");
  var named = document.getElementById("filter"), stops = document.getElementById("stops");
  document.querySelector(".tools").hidden = false;
  function sift() {
    var want = named.value.toLowerCase(), stop = {}, shown = 0, all = 0;
    document.querySelectorAll("table.m tr[data-p]").forEach(function (tr) { if (tr.dataset.x) stop[tr.dataset.p] = true; });
    document.querySelectorAll("tr[data-p]").forEach(function (tr) {
      var p = tr.dataset.p;
      tr.hidden = p.indexOf(want) < 0 || (stops.checked && !stop[p]);
      if (tr.dataset.r) { all += 1; shown += tr.hidden ? 0 : 1; }
    });
    put("sifted", want || stops.checked ? shown + " of " + all + " patches" : "");
  }
  named.addEventListener("input", sift);
  stops.addEventListener("change", sift);
  if (named.value || stops.checked) sift();
})();
