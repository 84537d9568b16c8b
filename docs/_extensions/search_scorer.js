// Scores of the site's search. Guide pages come before examples, reference pages and the changelog,
// and a page whose title has the words of the query before one that only mentions them.
"use strict";
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([docname, title, anchor, description, score]) => {
    const query = new URLSearchParams(location.search).get("q").toLowerCase().trim();
    const [page] = title.toLowerCase().split(" > ");
    const named = page.includes(query) ? 2 : title.toLowerCase().includes(query) ? 1.5 : 1;
    const factors = [
      [/^api\/|^genindex|^py-modindex|^sg_execution_times/, 0.1],
      [/^gallery\/(?!index)|^changelog|^coming_from/, 0.3],
      [/^families\//, 0.5],
    ];
    const [, factor] = factors.find(([pattern]) => pattern.test(docname)) || [null, 1];
    return score * named * factor;
  },
};
