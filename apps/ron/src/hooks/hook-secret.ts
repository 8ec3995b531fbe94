/** The secret of a provider, for `ron hooks add` and `rotate`. */
import { sched } from '@ron/kernel/core';
import type { SchemeName } from '@ron/proto';
import { usage } from '../args.ts';
import { readSecretInput } from '../secret-input.ts';
import type { HooksInvocation } from './hooks-options.ts';

const SECRET_BYTES = 32;

export interface HookSecret {
  readonly secret: string;
  /** It was made here: the operator has to enter it at the provider. */
  readonly isGenerated: boolean;
}

export async function hookSecret(invocation: HooksInvocation, name: string, scheme: SchemeName): Promise<HookSecret> {
  const { generate, 'secret-file': file } = invocation.values;
  if (generate === true) {
    if (file !== undefined) throw usage({ name: 'hooks' }, 'Specify --generate or --secret-file, not both');
    return { secret: generated(scheme), isGenerated: true };
  }
  const question = `Secret of ${name} (not shown): `;
  const secret = await readSecretInput(invocation, { command: 'hooks', file, flag: '--secret-file', question });
  return { secret, isGenerated: false };
}

function generated(scheme: SchemeName): string {
  if (scheme === 'slack' || scheme === 'stripe')
    throw usage({ name: 'hooks' }, `${scheme} makes the signing secret itself: copy it from there, without --generate`);
  const bytes = Buffer.from(sched.randomBytes(SECRET_BYTES));
  return scheme === 'standard' ? `whsec_${bytes.toString('base64')}` : bytes.toString('hex');
}
