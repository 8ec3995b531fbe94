/**
 * `ron queue accept`: shows why a ledger is broken, and lets mailbox continue once the operator confirms.
 *
 * Contract: the next start of mailbox accepts exactly the problem that was shown; another one keeps the gate `ledger` closed.
 * The log records the problem and the reason. A mailbox of this node is restarted.
 */
import { usage } from '../args.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../exits.ts';
import { columns } from '../format.ts';
import { restartService } from '../restart-service.ts';
import { dataDir, proveOffline, reportText } from './prove.ts';
import type { QueueInvocation } from './queue-options.ts';

export async function accept(invocation: QueueInvocation): Promise<void> {
  const { io, signal, values } = invocation;
  const { reason } = values;
  if (reason === undefined || reason === '') throw usage({ name: 'queue' }, '--reason is required: it is recorded');
  const dir = dataDir(invocation);
  if (dir === undefined) throw usage({ name: 'queue' }, 'run this on the node of mailbox, without --url');
  const report = await proveOffline(invocation, dir);
  const { problem, problem_sha256 } = report;
  if (problem === undefined || problem_sha256 === undefined)
    throw new CliError('failed', 'every ledger balances: there is nothing to accept');
  io.note(reportText(report));
  await confirm(invocation, 'queue', 'Mailbox will continue without the missing messages.');
  const { writeAcceptance } = await import('@ron/mailbox/offline');
  await writeAcceptance(dir, { problem_sha256, reason });
  const isRestarted = await restartService('mailbox', values, io, signal);
  const rows: [string, string][] = [
    ['accepted', problem],
    ['mailbox', isRestarted ? 'is ready' : 'continues after its next start: restart it'],
  ];
  io.result(columns(rows), { problem, problem_sha256, reason, restarted: isRestarted });
}
