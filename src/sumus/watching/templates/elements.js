// Everything that is shown is put in as text: a name cannot become markup.
live.elements = (() => {
  const at = (id) => document.getElementById(id);

  const write = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };

  const show = (node, wanted) => {
    if (node.hasAttribute("hidden") === wanted) node.toggleAttribute("hidden", !wanted);
  };

  const mark = (node, name, value) => {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  };

  const make = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };

  const drawn = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };

  // Replace what a node holds, if it would be anything else than last time.
  const fill = (node, known, children) => {
    const key = JSON.stringify(known);
    if (node.known === key) return;
    node.known = key;
    node.replaceChildren(...children());
  };

  const terms = (node, pairs) =>
    fill(node, pairs, () =>
      pairs.flatMap(([name, ...value]) => [make("dt", "", name), make("dd", "", ...value)]),
    );

  return { at, write, show, mark, make, drawn, fill, terms };
})();
