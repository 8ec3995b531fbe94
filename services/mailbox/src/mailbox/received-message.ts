/** Messages in the shape of the API. */
import { formatUlid, type ReceivedMessage } from '@ron/proto';
import type { StoredMessage } from '../store/read-message.ts';
import { b3Text } from './b3-text.ts';

export type MessageDto = Omit<ReceivedMessage, 'token'>;

export function messageDto(
  { id, meta, payload }: StoredMessage,
  { seq, delivery, attempts }: Pick<ReceivedMessage, 'seq' | 'delivery' | 'attempts'>,
): MessageDto {
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
    b3: b3Text(b3),
    payload,
  };
}
