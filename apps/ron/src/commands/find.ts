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
    const text = [columns(summaryOf(found)), ...found.providers.map(providerLine)];
    if (found.providers.length === 0) text.push('no provider is known');
    if (found.receipt !== undefined) text.push(...receiptLines(found.receipt));
    io.result(text.join('\n'), found);
  },
});

function summaryOf({ address, manifest, name, source, complete }: ResolveDto): [string, string][] {
  const { size, media_type } = manifest;
  return [
    ['address', address],
    ...(size === null ? [] : [['size', `${humanSize(size)}, ${media_type ?? 'type unknown'}`] as [string, string]]),
    ...(name === undefined
      ? []
      : ([
          ['name', `${name.label}, seq ${name.seq}, until ${dateOf(name.not_after)}${name.conflict ? ', forked' : ''}`],
          ['key', name.key],
        ] as [string, string][])),
    ['source', complete ? source : `${source}, some peers have not answered`],
  ];
}

function providerLine({ id, url, proof, age_s, latency_ms }: ProviderDto): string {
  const latency = latency_ms === null ? '' : `, ${Math.round(latency_ms)} ms`;
  return `provider  ${url}  ${proof}, announced ${humanDuration(age_s * 1000)} ago${latency}  ${id}`;
}

function receiptLines(receipt: ReceiptDto): string[] {
  const { took_ms, budget_ms, source, peers, hedges, breakers, ranking } = receipt;
  const ms = (time_ms: number): string => `${Math.round(time_ms)} ms`;
  return [
    `lookup    ${ms(took_ms)} of ${ms(budget_ms)}, from ${source}; hedges: ${hedges.started} started, ${hedges.won} won, ${hedges.refused} refused`,
    ...peers.map(
      (each) =>
        `peer      ${each.peer}  ${each.wave}, from ${ms(each.started_ms)}, ${each.outcome} after ${ms(each.took_ms)}, tries ${each.tries}, providers ${each.providers}, closer ${each.closer}`,
    ),
    ...breakers.map(({ target, state }) => `breaker   ${target}  ${state}`),
    ...ranking.map(
      ({ rank, id, proof, age_s, latency_ms, breaker }) =>
        `rank ${rank}    ${id}  ${proof}, age ${humanDuration(age_s * 1000)}, latency ${latency_ms === null ? 'unknown' : ms(latency_ms)}, breaker ${breaker}`,
    ),
  ];
}
