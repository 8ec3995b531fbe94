/** A delivery as one line. */
import type { DeliveryDto } from '@ron/proto';
import { humanSize } from '../format.ts';
import { dateOf } from '../names/show-name.ts';
import { oneLine } from '../printable.ts';

const OUTCOME_CHARS = 'duplicate'.length;

export function deliveryText(delivery: DeliveryDto, name_chars = 0): string {
  const { at_ms, provider, outcome, bytes, receipt, event, reason, detail, count, test, corr_id } = delivery;
  const refusal = [reason, detail].filter((each) => each !== undefined).join(': ');
  const parts = [
    test === true ? 'test' : undefined,
    event,
    bytes === undefined ? undefined : humanSize(bytes),
    receipt === undefined ? undefined : `receipt ${receipt}`,
    refusal === '' ? undefined : refusal,
    count === undefined ? undefined : `${count} times`,
    outcome === 'refused' && corr_id !== '' ? `corr_id ${corr_id}` : undefined,
  ].filter((part) => part !== undefined);
  const head = `${dateOf(at_ms / 1000)}  ${provider.padEnd(name_chars)}  ${outcome.padEnd(OUTCOME_CHARS)}`;
  return oneLine(`${head}  ${parts.join(', ')}`.trimEnd());
}
