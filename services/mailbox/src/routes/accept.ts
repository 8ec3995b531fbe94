/**
 * Chooses the media type of an answer by the header `Accept` (RFC 9110, section 12.5.1).
 *
 * Contract: JSON without the header. The type with the higher weight, where the most specific range decides; JSON if both are
 * equal, unless the header names the batch itself. Throws `not_acceptable` if neither is accepted.
 */
import { RonError } from '@ron/kernel';
import { BATCH_MEDIA_TYPE } from '@ron/proto';

const JSON_TYPE = 'application/json';

export function wantsBatch(accept: string | undefined): boolean {
  if (accept === undefined || accept === JSON_TYPE) return false;
  if (accept === BATCH_MEDIA_TYPE) return true;
  const weights = weightsOf(accept);
  const batch = weightOf(weights, BATCH_MEDIA_TYPE);
  const json = weightOf(weights, JSON_TYPE);
  if (batch === 0 && json === 0)
    throw new RonError('not_acceptable', `this route answers ${JSON_TYPE} or ${BATCH_MEDIA_TYPE}`);
  return batch > json || (batch === json && weights.has(BATCH_MEDIA_TYPE));
}

/** By media range. A weight that is not a number counts as 1. */
function weightsOf(accept: string): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const element of accept.split(',')) {
    const [range = '', ...parameters] = element.split(';').map((part) => part.trim().toLowerCase());
    const weight = parameters.find((parameter) => parameter.startsWith('q='));
    const value = weight === undefined ? 1 : Number(weight.slice(2));
    if (range !== '') weights.set(range, Number.isFinite(value) ? value : 1);
  }
  return weights;
}

function weightOf(weights: ReadonlyMap<string, number>, type: string): number {
  return weights.get(type) ?? weights.get('application/*') ?? weights.get('*/*') ?? 0;
}
