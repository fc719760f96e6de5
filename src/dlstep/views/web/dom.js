/** Creation of elements. Texts become text nodes: no code of the page parses markup. */

/** An element with attributes, `on` handlers and children; `text` is its text. */
export function make(tag, given = {}, ...children) {
  return dressed(document.createElement(tag), given, children);
}

/** The same for SVG. */
export function draw(tag, given = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), given, children);
}

function dressed(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element with an id that the page contains. */
export function the(id) {
  return document.getElementById(id);
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** Set a text only if it differs, so that screen readers do not repeat it and the layout stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute only if it differs. */
export function mark(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
