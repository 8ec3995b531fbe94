/** Escapes characters that control a terminal, in text that another program supplied. */

// oxlint-disable-next-line no-control-regex -- finding them is the point
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Keeps line breaks and tabs. */
export const printable = (text: string): string => text.replace(CONTROLS, escaped);

/** Escapes line breaks and tabs too, so that one value cannot pretend to be several. */
export const oneLine = (text: string): string => printable(text.replace(/[\t\n]/g, escaped));

const escaped = (char: string): string => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
