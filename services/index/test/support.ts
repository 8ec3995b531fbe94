/** Shared by the tests of index: the service in this process, and a client. */
import { loadConfig } from '@ron/config';
import { schema, startIndex, type Index, type IndexInit } from '@ron/index';
import { startInProcess, type InProcess } from '@ron/testkit/service';

export interface TestIndex extends Omit<InProcess<Index>, 'service'> {
  readonly index: Index;
}

export type TestInit = Omit<Partial<IndexInit>, 'config' | 'metrics' | 'log'> & {
  readonly flags?: readonly string[];
  /** Default: a temporary directory. */
  readonly dir?: string;
};

export const AMNESIA = ['--amnesia.enabled=true'];

export async function startService(init: TestInit = {}): Promise<TestIndex> {
  const { flags = [], dir, ...overrides } = init;
  const { service: index, ...rest } = await startInProcess({
    name: 'index',
    flags,
    dir,
    load: (given) => loadConfig({ schema, flags: given }),
    start: (common) => startIndex({ env: {}, ...common, ...overrides }),
  });
  return { index, ...rest };
}
