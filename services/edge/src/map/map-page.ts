/**
 * The page that draws a pack. Its text, modules and styles come from this server, and its policy forbids everything else.
 */
import { escapeHtml, type BuiltFiles, type PageFilesInit } from '@ron/pages';
import type { PackInfo } from '../packs/pack.ts';

/** The path of pages; files are below it, so that the page finds them behind a proxy that adds a prefix. */
export const MAP_PATH = '/edge/map/';

export const MAP_FILES: PageFilesInit = {
  prefix: `${MAP_PATH}files/`,
  href: './files/',
  root: new URL('../../../../', import.meta.url),
  entries: { map: new URL('../../page/map.ts', import.meta.url) },
  files: {
    style: new URL('../../page/map.css', import.meta.url),
    get maplibre_style() {
      return new URL(import.meta.resolve('maplibre-gl/dist/maplibre-gl.css'));
    },
    get maplibre_worker() {
      return new URL(import.meta.resolve('maplibre-gl/dist/maplibre-gl-worker.mjs'));
    },
  },
};

/** MapLibre decodes images from blobs and has icons as `data:` in its style sheet. */
export function mapHeaders(files: BuiltFiles): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `script-src ${files.script_src}`,
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' blob: data:",
    "worker-src 'self'",
    "frame-ancestors 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ];
  return {
    'Content-Security-Policy': policy.join('; '),
    'Cache-Control': 'no-cache',
    'Cross-Origin-Opener-Policy': 'same-origin',
  };
}

export function mapHtml(name: string, { address, format }: PackInfo, files: BuiltFiles): string {
  const title = escapeHtml(name);
  const style = (file: string): string => `<link rel="stylesheet" href="${escapeHtml(files.hrefOf(file))}">`;
  const data = { name, address, format, worker: files.hrefOf('maplibre_worker') };
  const attributes = Object.entries(data).map(([key, value]) => `data-${key}="${escapeHtml(value)}"`);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
${style('maplibre_style')}
${style('style')}
${files.head('map')}
</head>
<body>
<div id="map" role="application" aria-label="Map of ${title}" ${attributes.join(' ')}></div>
<p id="status" role="status">Loading ${title}</p>
<noscript><p>This page needs JavaScript, WebAssembly and WebGL.</p></noscript>
</body>
</html>
`;
}
