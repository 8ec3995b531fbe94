/**
 * The member `vector_layers` of the metadata of a pack, as TileJSON has it.
 *
 * Contract: only the members that TileJSON names are kept, each with its type, so the result is as deep as these are. Undefined
 * if the value is not a list of layers, or above the limits.
 */
/** A text of the metadata. */
const TEXT_CHARS_MAX = 16_384;
const LAYERS_MAX = 1024;
const FIELDS_MAX = 1024;
/** All layers as JSON. */
const LAYERS_CHARS_MAX = 256 * 1024;

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
export const isText = (value: unknown): value is string => typeof value === 'string' && value.length <= TEXT_CHARS_MAX;
const isZoom = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 31;

export function vectorLayers(value: unknown): readonly unknown[] | undefined {
  if (!Array.isArray(value) || value.length > LAYERS_MAX) return undefined;
  const layers = value.map(layerOf);
  if (layers.includes(undefined) || JSON.stringify(layers).length > LAYERS_CHARS_MAX) return undefined;
  return layers;
}

function layerOf(value: unknown): Record<string, unknown> | undefined {
  if (!isObject(value) || !isText(value['id'])) return undefined;
  const { id, description, minzoom, maxzoom, fields } = value;
  return {
    id,
    ...(isText(description) && { description }),
    ...(isZoom(minzoom) && { minzoom }),
    ...(isZoom(maxzoom) && { maxzoom }),
    fields: fieldsOf(fields),
  };
}

function fieldsOf(value: unknown): Record<string, string> {
  if (!isObject(value)) return {};
  const texts = Object.entries(value).filter((field): field is [string, string] => isText(field[1]));
  return Object.fromEntries(texts.slice(0, FIELDS_MAX));
}
