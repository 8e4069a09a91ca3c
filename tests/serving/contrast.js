// The contrast of every visible text with what is behind it, by the formula of WCAG 2.2.
() => {
  const channel = (value) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const numbers = (color) => {
    const all = color.match(/[\d.]+/g).map(Number);
    return all.length < 4 ? [...all, 1] : all;
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((value) => channel(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, below) =>
    [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]);
  const background = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement)
      layers.unshift(numbers(getComputedStyle(each).backgroundColor));
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(style)")) {
    const texts = [...element.childNodes].filter((node) => node.nodeType === 3);
    if (!texts.some((node) => node.textContent.trim()) || !element.checkVisibility()) continue;
    const below = background(element);
    const text = over(numbers(getComputedStyle(element).color), below);
    const [dark, light] = [luminance(text), luminance(below)].sort((a, b) => a - b);
    found.push([(light + 0.05) / (dark + 0.05), element.textContent.slice(0, 40)]);
  }
  return found;
}
