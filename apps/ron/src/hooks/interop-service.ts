/** Access to interop for commands. */
import { InteropClient } from '@ron/client';
import { PROVIDER_PATTERN } from '@ron/proto';
import { CliError } from '../exits.ts';
import type { ResolvedService } from '../resolve-service.ts';
import { withClient } from '../service-client.ts';
import type { HooksInvocation } from './hooks-options.ts';

export function withInterop<T>(
  { values, io, signal }: Pick<HooksInvocation, 'values' | 'io' | 'signal'>,
  work: (client: InteropClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  return withClient('interop', (init) => new InteropClient(init), values, io, signal, work);
}

const NAME = new RegExp(PROVIDER_PATTERN);

export function providerArg(text: string): string {
  if (NAME.test(text)) return text;
  throw new CliError(
    'usage',
    `${JSON.stringify(text)} cannot be the name of a provider: use 1 to 32 of a-z, 0-9 and _`,
  );
}
