/** States how kms detects that its data was replaced by an older copy, for `/readyz` and `/version`. */
import type { KmsConfig } from './config.ts';

/** Each record is sealed for its place, but not for its time. */
const ONE_RECORD = 'one record of the store replaced by an older copy of itself';

export function rollbackFacts({ audit, amnesia }: KmsConfig): Readonly<Record<string, string>> {
  if (amnesia.enabled) return { rollback_protection: 'none' };
  if (audit.witness_url !== undefined) {
    const away = 'a rollback of all files together while the witness is away, until it is back';
    return { rollback_protection: 'witness', rollback_unseen: `${away}; ${ONE_RECORD}` };
  }
  return {
    rollback_protection: 'keystore',
    rollback_unseen: `a rollback of all files together, which only a witness detects; ${ONE_RECORD}`,
  };
}
