/** A line plot as an SVG file: values over seconds, with a line for the capacity. */

export interface Series {
  readonly name: string;
  readonly color: string;
  /** One value for each second. */
  readonly values: readonly number[];
  readonly isDashed?: boolean;
}

export interface Plot {
  readonly title: string;
  readonly unit: string;
  readonly series: readonly Series[];
  /** A horizontal line. */
  readonly level?: { readonly name: string; readonly value: number };
}

const WIDTH = 760;
const HEIGHT = 340;
const LEFT = 56;
const RIGHT = 16;
const TOP = 64;
const BOTTOM = 36;
const TEXT = 'font-family="sans-serif" font-size="12" fill="#374151"';

export function svgOf({ title, unit, series, level }: Plot): string {
  const seconds = Math.max(...series.map(({ values }) => values.length), 2);
  const largest = Math.max(level?.value ?? 0, ...series.flatMap(({ values }) => values), 1);
  const step = stepOf(largest / 4);
  const top = Math.ceil(largest / step) * step;
  const x = (second: number): number => LEFT + (second / seconds) * (WIDTH - LEFT - RIGHT);
  const y = (value: number): number => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const label = (at_x: number, at_y: number, anchor: string, text: string): string =>
    `<text x="${at_x.toFixed(1)}" y="${at_y.toFixed(1)}" text-anchor="${anchor}" ${TEXT}>${text}</text>`;
  const grid = Array.from({ length: Math.round(top / step) + 1 }, (_, at) => at * step).flatMap((value) => [
    `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value).toFixed(1)}" y2="${y(value).toFixed(1)}" stroke="#e5e7eb"/>`,
    label(LEFT - 8, y(value) + 4, 'end', String(value)),
  ]);
  const every = stepOf(seconds / 8);
  const marks = Array.from({ length: Math.floor(seconds / every) + 1 }, (_, at) => at * every).map((second) =>
    label(x(second), HEIGHT - BOTTOM + 18, 'middle', `${second} s`),
  );
  // A value is that of the second around it.
  const lines = series.map(({ values, color, isDashed = false }) => {
    const points = values.map((value, second) => `${x(second + 0.5).toFixed(1)},${y(value).toFixed(1)}`);
    const dash = isDashed ? ' stroke-dasharray="5 4"' : '';
    return `<polyline points="${points.join(' ')}" fill="none" stroke="${color}" stroke-width="2"${dash}/>`;
  });
  const rule =
    level === undefined
      ? []
      : [
          `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(level.value).toFixed(1)}" y2="${y(level.value).toFixed(1)}" stroke="#6b7280" stroke-dasharray="2 3"/>`,
          label(WIDTH - RIGHT, y(level.value) - 5, 'end', level.name),
        ];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img">`,
    `<title>${title}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#ffffff"/>`,
    label(LEFT, 20, 'start', `${title} (${unit})`),
    ...legend(series, label),
    ...grid,
    ...marks,
    ...rule,
    ...lines,
    '</svg>',
    '',
  ].join('\n');
}

function legend(
  series: readonly Series[],
  label: (x: number, y: number, anchor: string, text: string) => string,
): readonly string[] {
  const width = (WIDTH - LEFT - RIGHT) / series.length;
  return series.flatMap(({ name, color, isDashed = false }, at) => {
    const from = LEFT + at * width;
    const dash = isDashed ? ' stroke-dasharray="5 4"' : '';
    return [
      `<line x1="${from.toFixed(1)}" x2="${(from + 22).toFixed(1)}" y1="40" y2="40" stroke="${color}" stroke-width="2"${dash}/>`,
      label(from + 28, 44, 'start', name),
    ];
  });
}

/** 1, 2 or 5 times a power of ten, at least 1. */
function stepOf(wanted: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= wanted)!;
}
