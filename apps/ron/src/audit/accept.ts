/**
 * `ron audit accept`: shows the damage of the audit log, and goes on with a new log once the operator confirms.
 *
 * Contract: the request names the damage that was shown; kms refuses it if the damage is another one by now. The new log
 * begins with the next start of kms. A kms of this node is restarted.
 */
import type { AuditStatus } from '@ron/proto';
import { usage } from '../args.ts';
import type { ConnectionValues } from '../resolve-service.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../exits.ts';
import { columns } from '../format.ts';
import type { Io } from '../io.ts';
import { withKms } from '../kms.ts';
import { restartService } from '../restart-service.ts';

export interface AcceptValues extends ConnectionValues {
  readonly reason?: string | undefined;
  readonly yes?: boolean | undefined;
}

export async function accept(values: AcceptValues, io: Io, signal: AbortSignal): Promise<void> {
  const { reason } = values;
  if (reason === undefined || reason === '') throw usage({ name: 'audit' }, '--reason is required: it is recorded');
  const status = await withKms(values, io, signal, (client) => client.auditStatus({ signal }));
  const { problem, problem_sha256 } = status;
  if (problem === undefined || problem_sha256 === undefined)
    throw new CliError('failed', `the audit log ${status.origin} is sound: there is no damage to accept`);
  io.note(factsOf(status));
  await confirm({ io, signal, values }, 'audit', 'A new log begins; the former one is kept, if there is one.');
  const accepted = await withKms(values, io, signal, (client) =>
    client.acceptAudit(problem_sha256, reason, { signal }),
  );
  const isRestarted = await restartService('kms', values, io, signal, 'sign');
  const rows: [string, string][] = [
    ['accepted', problem],
    ['former log', accepted.archive === undefined ? 'none was found' : `kept in kms/data/${accepted.archive}`],
    ['new log', accepted.next_origin],
    ['signing', isRestarted ? 'works' : 'works after the next start of kms: restart it'],
  ];
  io.result(columns(rows), { ...accepted, problem, restarted: isRestarted });
}

function factsOf({ origin, problem, known, found }: AuditStatus): string {
  const size = (of: AuditStatus['known']): string => (of === undefined ? 'none' : `${of.size} signed entries`);
  const rows: [string, string][] = [
    ['log', origin],
    ['problem', problem!],
    ['kms knows', size(known)],
    ['the log has', size(found)],
    ['effect', effectOf(known?.size ?? 0, found?.size ?? 0)],
  ];
  return columns(rows);
}

function effectOf(known: number, found: number): string {
  if (found > known)
    return (
      `kms lost the effects of entries ${known} to ${found - 1}, for example new keys. ` +
      'Nonces stay unique, because each block of them has a random part'
    );
  if (found < known) return `entries ${found} to ${known - 1} are missing from the log`;
  return 'the former log stays as evidence and is not continued';
}
