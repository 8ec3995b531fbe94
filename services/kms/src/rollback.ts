/** States how kms detects that its data was replaced by an older copy, for `/readyz` and `/version`. */
import type { KmsConfig } from './config.ts';

export function rollbackFacts({ audit, amnesia }: KmsConfig): Readonly<Record<string, string>> {
  if (amnesia.enabled) return { rollback_protection: 'none' };
  if (audit.witness_url !== undefined) return { rollback_protection: 'witness' };
  return {
    rollback_protection: 'keystore',
    rollback_unseen: 'a rollback of all files together; only a witness detects it',
  };
}
