/** The value of one series in the text of a scrape; 0 when it is not there. `series` includes its labels. */
export function metricIn(text: string, series: string): number {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}
