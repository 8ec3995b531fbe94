/** The metadata of a pack, reduced to the members of TileJSON that are sent to clients. */
import { RonError } from '@ron/kernel/core';
import { isObject, isText, vectorLayers } from '../../vector-layers.ts';

/** Decoded metadata. */
export const METADATA_BYTES_MAX = 10 * 1024 * 1024;
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
