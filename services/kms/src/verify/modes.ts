/**
 * Verification modes: which signatures of a set must verify.
 *
 *     or < pq_only < and        a request may use a stricter mode than the key's, never a weaker one
 */
import { ALGORITHMS, type SigningAlg } from '@ron/custody';
import { RonError } from '@ron/kernel';
import type { VerifyMode } from '@ron/proto';
import type { KeyRecord } from '../keys/key-record.ts';

const STRENGTH: Readonly<Record<VerifyMode, number>> = { or: 0, pq_only: 1, and: 2 };

/** The default mode of a key: for a hybrid key both signatures count. */
export function defaultMode(alg: KeyRecord['alg']): VerifyMode {
  return alg === 'hybrid' ? 'and' : 'or';
}

/** Refuses a mode that no signature of such a key could satisfy. */
export function requireMode(alg: KeyRecord['alg'], mode: VerifyMode | undefined): void {
  if (mode === undefined) return;
  const { use, post_quantum } = ALGORITHMS[alg];
  if (use !== 'sign') throw new RonError('validation', `keys of ${alg} do not sign and have no verify_mode`);
  if (mode === 'pq_only' && !post_quantum) {
    throw new RonError(
      'validation',
      `keys of ${alg} make no post-quantum signature, so pq_only can never be satisfied`,
    );
  }
}

/** The mode to apply. Throws if the request would weaken the key's own mode. */
export function effectiveMode(
  record: Pick<KeyRecord, 'verify_mode' | 'name'>,
  asked: VerifyMode | undefined,
): VerifyMode {
  if (asked === undefined) return record.verify_mode;
  if (STRENGTH[asked] >= STRENGTH[record.verify_mode]) return asked;
  throw new RonError(
    'reject_policy',
    `${record.name} requires ${record.verify_mode}; a request may not weaken it to ${asked}`,
  );
}

export interface Checked {
  readonly alg: SigningAlg;
  readonly ok: boolean;
}

/** Why the mode is not satisfied; undefined if it is. `parts` are the signatures that the key makes. */
export function lacking(
  mode: VerifyMode,
  parts: readonly SigningAlg[],
  checked: readonly Checked[],
): string | undefined {
  const isGood = (alg: SigningAlg): boolean => checked.some((each) => each.alg === alg && each.ok);
  if (mode === 'or') return parts.some(isGood) ? undefined : 'no signature verifies';
  const needed = mode === 'and' ? parts : parts.filter((alg) => ALGORITHMS[alg].post_quantum);
  if (needed.length === 0) return 'the key makes no post-quantum signature';
  const missing = needed.filter((alg) => !isGood(alg));
  return missing.length === 0 ? undefined : `no valid signature of ${missing.join(' and ')}`;
}
