/** Messages in the shape of the API. */
import { formatAddress, formatUlid, type PeekedMessage } from '@ron/proto';
import type { StoredMessage } from '../../store/read-message.ts';

export function messageDto(
  { id, meta, payload }: StoredMessage,
  { seq, delivery, attempts }: Pick<PeekedMessage, 'seq' | 'delivery' | 'attempts'>,
): PeekedMessage {
  const { sent_ms, key, headers, replay_of, b3 } = meta;
  return {
    id: formatUlid(id),
    seq,
    delivery,
    attempts,
    sent_ms,
    ...(key !== undefined && { key }),
    headers,
    ...(replay_of !== undefined && { replay_of }),
    b3: formatAddress(b3),
    payload,
  };
}
