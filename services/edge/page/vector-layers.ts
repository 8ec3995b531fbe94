/** A simple default style: areas, lines and points of each layer, in a colour made of its name. */
import type { LayerSpecification } from 'maplibre-gl';

const LAYERS_MAX = 64;

export function vectorLayers(ids: readonly string[]): LayerSpecification[] {
  const names = ids.slice(0, LAYERS_MAX);
  return [
    ...names.map((name): LayerSpecification => {
      const paint = { 'fill-color': colour(name), 'fill-opacity': 0.35 };
      return { ...layer(name, 'areas'), type: 'fill', paint };
    }),
    ...names.map((name): LayerSpecification => {
      const paint = { 'line-color': colour(name), 'line-width': 1 };
      return { ...layer(name, 'lines'), type: 'line', paint };
    }),
    ...names.map((name): LayerSpecification => {
      const paint = { 'circle-color': colour(name), 'circle-radius': 3 };
      // Without a filter, the corners of areas and lines would be circles too.
      return { ...layer(name, 'points'), type: 'circle', filter: ['==', ['geometry-type'], 'Point'], paint };
    }),
  ];
}

const layer = (name: string, kind: string) => ({ id: `${name} ${kind}`, source: 'pack', 'source-layer': name });

function colour(name: string): string {
  let hue = 0;
  for (const character of name) hue = (hue * 31 + character.codePointAt(0)!) % 360;
  return `hsl(${hue}, 60%, 40%)`;
}
