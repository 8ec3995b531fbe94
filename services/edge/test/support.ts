/** Shared by the tests of edge: the service in this process, and a client. */
import { loadConfig } from '@ron/config';
import { schema, startEdge, type Edge, type EdgeInit } from '@ron/edge';
import { startInProcess, type InProcess } from '@ron/testkit/service';

export interface TestEdge extends Omit<InProcess<Edge>, 'service'> {
  readonly edge: Edge;
}

export type TestInit = Omit<Partial<EdgeInit>, 'config' | 'metrics' | 'log'> & {
  readonly flags?: readonly string[];
  /** Default: a temporary directory. */
  readonly dir?: string;
};

export const AMNESIA = ['--amnesia.enabled=true'];

export async function startService(init: TestInit = {}): Promise<TestEdge> {
  const { flags = [], dir, ...overrides } = init;
  const { service: edge, ...rest } = await startInProcess({
    name: 'edge',
    flags,
    dir,
    load: (given) => loadConfig({ schema, flags: given }),
    start: (common) => startEdge({ env: {}, ...common, ...overrides }),
  });
  return { edge, ...rest };
}
