/** Derives the key of one service from the key of the node, so that a service cannot open the files of another one. */
import { hkdfSync } from 'node:crypto';
import { KEK_BYTES, kekFromText } from './sealer.ts';

const INFO = 'ron/service-kek/v1\n';

/** In hex, as `RON_KEK` of the service. `text` is `RON_KEK` of the node. */
export function serviceKek(text: string, service: string): string {
  return Buffer.from(hkdfSync('sha256', kekFromText(text), '', `${INFO}${service}`, KEK_BYTES)).toString('hex');
}
