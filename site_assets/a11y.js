/* Repairs of the theme's markup that axe or a screen reader stumbles over; each line says what is wrong without it. */
addEventListener("DOMContentLoaded", () => {
  const each = (selector, repair) => document.querySelectorAll(selector).forEach(repair);
  // The logo stands outside every landmark.
  each(".sidebar-primary-item:has(> a.navbar-brand)", e => { e.role = "navigation"; e.ariaLabel = "Book home"; });
  // References are given list roles that their children do not fit.
  each(".citation-list[role], .citation[role]", e => e.removeAttribute("role"));
  // The toggle's name hides its text ("Show code"), which is what one would say to press it.
  each("summary[aria-label]", e => e.removeAttribute("aria-label"));
  // An equation wider than the page scrolls, and the keyboard cannot reach it. Its width changes with MathJax and the window.
  const reach = e => e.scrollWidth > e.clientWidth ? e.tabIndex = 0 : e.removeAttribute("tabindex");
  const widths = new ResizeObserver(changes => changes.forEach(({target}) => reach(target.closest("div.math"))));
  const follow = () => each("div.math, div.math mjx-container, div.math mjx-math", e => widths.observe(e));
  addEventListener("load", () => { follow(); window.MathJax?.startup?.promise?.then(follow); });
});
