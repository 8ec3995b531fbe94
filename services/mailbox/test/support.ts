/** Shared by the tests of mailbox: the service in this process, and a client. */
import { loadConfig } from '@ron/config';
import { schema, startMailbox, type MailboxService, type MailboxServiceInit } from '@ron/mailbox';
import { startInProcess, type InProcess } from '@ron/testkit/service';

export interface TestMailbox extends Omit<InProcess<MailboxService>, 'service'> {
  readonly mailbox: MailboxService;
}

export type TestInit = Omit<Partial<MailboxServiceInit>, 'config' | 'metrics' | 'log'> & {
  readonly flags?: readonly string[];
  /** Default: a temporary directory. */
  readonly dir?: string;
};

export const AMNESIA = ['--amnesia.enabled=true'];

export async function startService(init: TestInit = {}): Promise<TestMailbox> {
  const { flags = [], dir, ...overrides } = init;
  const { service: mailbox, ...rest } = await startInProcess({
    name: 'mailbox',
    flags,
    dir,
    load: (given) => loadConfig({ schema, flags: given }),
    start: (common) => startMailbox({ env: {}, ...common, ...overrides }),
  });
  return { mailbox, ...rest };
}
