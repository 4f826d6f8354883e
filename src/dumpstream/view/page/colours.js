// Which colour a value has on the map, and the legend that says so.

const DARK = matchMedia("(prefers-color-scheme: dark)");

// Dark blue to yellow: lightness grows evenly, so that it also works without colour vision.
const RAMP = [
  [68, 1, 84], [70, 50, 126], [54, 92, 141], [39, 127, 142],
  [31, 161, 135], [74, 193, 109], [160, 218, 57], [253, 231, 37],
];

export const NAN = [214, 24, 96];
export const INFINITE = [240, 140, 20];
export const LOST = [128, 70, 220];

export const isDark = () => DARK.matches;
export const onThemeChange = (changed) => DARK.addEventListener("change", changed);
export const ground = () => (isDark() ? [32, 40, 54] : [226, 231, 238]);
export const fine = () => (isDark() ? [52, 92, 132] : [150, 186, 220]);
export const absent = () => (isDark() ? [120, 110, 84] : [214, 202, 170]);
export const unknown = () => (isDark() ? [74, 84, 100] : [190, 198, 208]);

export function ramp(share) {
  const place = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, RAMP.length - 1);
  return RAMP[low].map((value, i) => Math.round(value + (RAMP[high][i] - value) * (place - low)));
}

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
