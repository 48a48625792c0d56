// Light or dark as the documentation around the page, or as the system prefers; inside it, as high as its content.

const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
const outer = window.frameElement && parent.document.body; // null where the page stands alone

function follow() {
  const scheme = outer?.dataset.mdColorScheme;
  root.dataset.theme = (scheme ? scheme === "slate" : dark.matches) ? "dark" : "light";
}

follow();
dark.addEventListener("change", follow);
if (outer) {
  root.dataset.embedded = "";
  new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  addEventListener("DOMContentLoaded", () => {
    const fit = () => { window.frameElement.style.height = `${document.body.offsetHeight}px`; };
    new ResizeObserver(fit).observe(document.body);
  });
}
