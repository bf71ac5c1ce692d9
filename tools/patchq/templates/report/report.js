(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("cells").textContent);
  var box = document.getElementById("cell"), back = null;
  function put(id, text) { document.getElementById(id).textContent = text; }
  function open(td) {
    var table = td.closest("table"), m = data[table.dataset.m], tr = td.parentElement;
    var row = Number(tr.dataset.r), col = td.cellIndex - 1, at = (m.e[row] || {})[col];
    var found = at ? [m.s[at[0]], m.s[at[1]], at[2]] : ["", "", 0];
    put("cell-name", m.u + "/" + m.n[row] + " on " + m.r[col]);
    put("cell-outcome", td.textContent || "not known: patchq forecast " + m.u + " --onto " + m.r[col]);
    put("cell-said", found[0]);
    var link = document.getElementById("cell-file");
    link.hidden = !found[1];
    if (found[1]) { link.href = found[1]; link.textContent = decodeURI(found[1]) + (found[2] ? ", line " + found[2] : ""); }
    back = td;
    box.showModal();
  }
  box.addEventListener("close", function () { if (back) back.focus(); });
  document.querySelectorAll("table.m").forEach(function (table) {
    var at = table.querySelector("td");
    if (at) at.tabIndex = 0;
    function go(td) { if (!td || td.tagName !== "TD") return; if (at) at.tabIndex = -1; at = td; td.tabIndex = 0; td.focus(); }
    function step(tr, forward) {
      do { tr = forward ? tr.nextElementSibling : tr.previousElementSibling; } while (tr && tr.hidden);
      return tr;
    }
    table.addEventListener("click", function (e) { var td = e.target.closest("td"); if (td) { go(td); open(td); } });
    table.addEventListener("keydown", function (e) {
      var td = e.target.closest("td"), tr;
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
  document.getElementById("filter").addEventListener("input", function (e) {
    var want = e.target.value.toLowerCase();
    document.querySelectorAll("tr[data-p]").forEach(function (tr) { tr.hidden = tr.dataset.p.indexOf(want) < 0; });
  });
})();
