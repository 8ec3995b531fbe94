/** `ron find`: shows which nodes provide an object, and why they are ranked as they are. */
import type { ProviderDto, ReceiptDto, ResolveDto } from '@ron/proto';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { columns, humanDuration, humanSize } from '../format.ts';
import { targetArg } from '../names/name-arg.ts';
import { servicesOf } from '../names/node-services.ts';
import { dateOf } from '../names/show-name.ts';

const options = {
  receipt: { type: 'boolean', doc: 'Explain the lookup: peers, hedges, breakers and the ranking.' },
  fresh: { type: 'boolean', doc: 'Bypass the cache of the node.' },
  ...CONNECTION_OPTIONS,
} as const;

export default command({
  name: 'find',
  usage: 'find ADDRESS|NAME [--receipt] [--fresh]',
  about:
    'Prints the address, and the nodes that provide the object, the best first. "proven" means that the node of the\n' +
    'directory has verified a random part of the object there.',
  options,
  args: [1, 1],
  examples: {
    'ron find b3:...': 'print the providers of an object',
    'ron find docs/readme --receipt': 'print how the name was resolved',
  },
  async run(invocation) {
    const { values, args, io } = invocation;
    const target = targetArg(args[0]!);
    const { receipt, fresh } = values;
    const found = await servicesOf(invocation, 'index').index((index) => index.resolve(target, { receipt, fresh }));
    const rows = [...summaryOf(found), ...found.providers.map(providerRow)];
    if (found.providers.length === 0) rows.push(['provider', 'none is known']);
    if (found.receipt !== undefined) rows.push(...receiptRows(found.receipt));
    io.result(columns(rows), found);
  },
});

type Row = [string, string];

function summaryOf({ address, manifest, name, source, complete }: ResolveDto): Row[] {
  const { size, media_type } = manifest;
  const rows: Row[] = [['address', address]];
  if (size !== null) rows.push(['size', `${humanSize(size)}, ${media_type ?? 'type unknown'}`]);
  if (name !== undefined) {
    const { label, seq, not_after, conflict, key } = name;
    rows.push(['name', `${label}, seq ${seq}, until ${dateOf(not_after)}${conflict ? ', forked' : ''}`], ['key', key]);
  }
  return [...rows, ['source', complete ? source : `${source}, some peers have not answered`]];
}

function providerRow({ id, url, proof, age_s, latency_ms }: ProviderDto): Row {
  const age = age_s === null ? '' : `, announced ${humanDuration(age_s * 1000)} ago`;
  const latency = latency_ms === null ? '' : `, ${ms(latency_ms)}`;
  return ['provider', `${url}  ${proof}${age}${latency}  ${id}`];
}

function receiptRows({ took_ms, budget_ms, source, peers, hedges, breakers, ranking }: ReceiptDto): Row[] {
  const { started, won, refused } = hedges;
  return [
    ['lookup', `${ms(took_ms)} of ${ms(budget_ms)}, from ${source}`],
    ['hedges', `${started} started, ${won} won, ${refused} refused`],
    ...peers.map(({ peer, wave, started_ms, took_ms: time_ms, outcome, tries, providers, closer }): Row => {
      const answer = `${outcome} after ${ms(time_ms)}, tries ${tries}, providers ${providers}, closer ${closer}`;
      return ['peer', `${peer}  ${wave} at ${ms(started_ms)}, ${answer}`];
    }),
    ...breakers.map(({ target, state }): Row => ['breaker', `${target}  ${state}`]),
    ...ranking.map(({ rank, id, proof, age_s, latency_ms, breaker }): Row => {
      const age = age_s === null ? 'unknown' : humanDuration(age_s * 1000);
      const latency = latency_ms === null ? 'unknown' : ms(latency_ms);
      return [`rank ${rank}`, `${id}  ${proof}, age ${age}, latency ${latency}, breaker ${breaker}`];
    }),
  ];
}

const ms = (time_ms: number): string => `${Math.round(time_ms)} ms`;
