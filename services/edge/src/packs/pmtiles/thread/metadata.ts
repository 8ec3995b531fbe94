/** The metadata of a pack, reduced to the members of TileJSON that are sent to clients. */
import { RonError } from '@ron/kernel/core';

/** Decoded metadata. */
export const METADATA_BYTES_MAX = 10 * 1024 * 1024;
const TEXT_CHARS_MAX = 16_384;
const LAYERS_MAX = 1024;
const FIELDS_MAX = 1024;
/** All layers as JSON. */
const LAYERS_CHARS_MAX = 256 * 1024;
const TEXTS = ['name', 'description', 'attribution', 'version'] as const;

/** Throws `validation` if the bytes are not a JSON object. Members of another type or above the limits are left out. */
export function readMetadata(bytes: Uint8Array): Record<string, unknown> {
  const json = parse(bytes);
  const metadata: Record<string, unknown> = {};
  for (const name of TEXTS) if (isText(json[name])) metadata[name] = json[name];
  const layers = vectorLayers(json['vector_layers']);
  if (layers !== undefined) metadata['vector_layers'] = layers;
  return metadata;
}

function parse(bytes: Uint8Array): Record<string, unknown> {
  if (bytes.length === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new RonError('validation', 'the metadata is not valid JSON', { cause: error });
  }
  if (!isObject(value)) throw new RonError('validation', 'the metadata is not a JSON object');
  return value;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === 'string' && value.length <= TEXT_CHARS_MAX;
const isZoom = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 31;

function vectorLayers(value: unknown): readonly unknown[] | undefined {
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
