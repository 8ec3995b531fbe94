/** `ron hooks add`, `list`, `show`, `rotate`, `remove` and `test`. */
import { sched } from '@ron/kernel/core';
import type { InteropClient } from '@ron/client';
import { INTEROP_LIMITS, type Descriptor, type SecretDto, type WebhookProviderDto } from '@ron/proto';
import { confirm } from '../confirm.ts';
import { columns } from '../format.ts';
import { homeOf, runningService } from '../home.ts';
import { dateOf } from '../names/show-name.ts';
import { durationArg } from '../quantity-args.ts';
import { hookSecret, type HookSecret } from './hook-secret.ts';
import type { HooksInvocation } from './hooks-options.ts';
import { providerArg, withInterop } from './interop-service.ts';
import { providerInit } from './provider-init.ts';
import { changedSettings, providerTable, providerText } from './provider-text.ts';
import { sampleCommand } from './sample-command.ts';

type Args = readonly string[];

/** The file that the printed command reads, if the operator named none. */
const SECRET_FILE = 'hook.secret';

/**
 * Creates a provider, or changes a known one, which keeps all settings whose flags are absent. It keeps its secrets too, unless one
 * is given, which ends them.
 */
export async function add(invocation: HooksInvocation, [text]: Args): Promise<void> {
  const { values, signal } = invocation;
  const name = providerArg(text!);
  const before = await withInterop(invocation, (client) => known(client, name, signal));
  const init = providerInit(values, before);
  const keeps = before !== undefined && values['secret-file'] === undefined && values.generate === undefined;
  const ends = `The secrets of ${name} end at once; \`ron hooks rotate\` keeps the previous one for a time.`;
  if (before !== undefined && !keeps) await confirm(invocation, 'hooks', ends);
  const given = keeps ? undefined : await hookSecret(invocation, name, init.scheme);
  const request = { ...init, ...(given !== undefined && { secret: given.secret }) };
  await withInterop(invocation, async (client, { url }) => {
    const provider = await client.putProvider(name, request, { signal });
    await printAdded(invocation, provider, { before, given, called_url: url });
  });
}

async function known(client: InteropClient, name: string, signal: AbortSignal): Promise<Descriptor | undefined> {
  return (await client.providers({ signal })).find((each) => each.name === name);
}

interface Added {
  /** Undefined for a new provider. */
  readonly before: Descriptor | undefined;
  readonly given: HookSecret | undefined;
  readonly called_url: string;
}

async function printAdded(
  { io, values }: HooksInvocation,
  provider: WebhookProviderDto,
  { before, given, called_url }: Added,
): Promise<void> {
  const { name, topic, secrets } = provider;
  const url = `${(await publicUrl({ io, values })) ?? called_url}/webhooks/${name}`;
  const file = values['secret-file'];
  const secret_file = file === undefined || file === '-' ? SECRET_FILE : file;
  // A public key cannot sign.
  const sample = newestOf(secrets)?.kind === 'ed25519' ? undefined : sampleCommand(provider, url, secret_file);
  const rows: [string, string][] = [
    ['provider', `${name}, ${provider.scheme}, messages go to ${topic}`],
    ['url', url],
    ...(before === undefined ? [] : changeRows(before, provider, given)),
    ...secretRows(given),
    ...(provider.problem === undefined ? [] : [['closed', provider.problem] satisfies [string, string]]),
  ];
  io.result(columns(rows), { ...provider, url, ...(given?.isGenerated === true && { secret: given.secret }) });
  if (sample === undefined || io.json) return;
  io.result(
    `\ntest it with \`ron hooks test ${name}\`, or with curl and the secret in ${secret_file}:\n\n${sample}`,
    {},
  );
}

function changeRows(before: Descriptor, after: WebhookProviderDto, given: HookSecret | undefined): [string, string][] {
  const rows = changedSettings(before, after);
  if (given !== undefined) rows.push(['secret', `v${newestOf(after.secrets)?.version}; all others have ended`]);
  return rows.length === 0 ? [['changed', 'nothing']] : rows;
}

const newestOf = (secrets: readonly SecretDto[]): SecretDto | undefined =>
  secrets.toSorted((a, b) => b.version - a.version)[0];

const secretRows = (given: HookSecret | undefined): [string, string][] =>
  given?.isGenerated === true ? [['secret', `${given.secret}  (shown only now: enter it at the provider)`]] : [];

/** The URL for users; the socket is for `ron` only. */
async function publicUrl({ io, values }: Pick<HooksInvocation, 'io' | 'values'>): Promise<string | undefined> {
  return (await runningService(homeOf(values, io), 'interop'))?.url;
}

export async function list(invocation: HooksInvocation): Promise<void> {
  const { io, signal } = invocation;
  const providers = await withInterop(invocation, (client) => client.providers({ signal }));
  for (const provider of io.json ? providers : []) io.result('', provider);
  if (!io.json) io.result(providerTable(providers, sched.wall_ms()), {});
}

export async function show(invocation: HooksInvocation, [text]: Args): Promise<void> {
  const { io, signal } = invocation;
  const name = providerArg(text!);
  const provider = await withInterop(invocation, (client) => client.provider(name, { signal }));
  io.result(providerText(provider, sched.wall_ms()), provider);
}

/** The previous secret stays valid for the overlap, so that the provider can be changed meanwhile. */
export async function rotate(invocation: HooksInvocation, [text]: Args): Promise<void> {
  const { io, signal, values } = invocation;
  const name = providerArg(text!);
  const overlap_ms =
    values.overlap === undefined
      ? INTEROP_LIMITS.overlap_ms
      : durationArg('--overlap', values.overlap, 0, INTEROP_LIMITS.overlap_ms_max);
  const before = await withInterop(invocation, (client) => client.provider(name, { signal }));
  const given = await hookSecret(invocation, name, before.scheme);
  const provider = await withInterop(invocation, (client) =>
    client.rotate(name, { secret: given.secret, overlap_ms }, { signal }),
  );
  const newest = newestOf(provider.secrets);
  const previous = provider.secrets.find(({ version }) => version !== newest?.version);
  const rows: [string, string][] = [
    ['provider', name],
    ['newest', `v${newest?.version}: enter it at the provider now`],
    ...(previous?.ends_ms === undefined
      ? []
      : [
          ['previous', `v${previous.version}, accepted until ${dateOf(previous.ends_ms / 1000)}`] satisfies [
            string,
            string,
          ],
        ]),
    ...secretRows(given),
  ];
  io.result(columns(rows), { ...provider, ...(given.isGenerated && { secret: given.secret }) });
}

export async function remove(invocation: HooksInvocation, [text]: Args): Promise<void> {
  const { io, signal } = invocation;
  const name = providerArg(text!);
  const { topic } = await withInterop(invocation, (client) => client.provider(name, { signal }));
  await confirm(invocation, 'hooks', `${name} and its secrets will be deleted for good; its webhooks get 404.`);
  await withInterop(invocation, (client) => client.removeProvider(name, { signal }));
  io.result(`removed ${name}; its messages stay in ${topic}`, { removed: name, topic });
}

/** Delivers a signed sample, through the same checks as a webhook. */
export async function test(invocation: HooksInvocation, [text]: Args): Promise<void> {
  const { io, signal } = invocation;
  const name = providerArg(text!);
  const { topic, accepted } = await withInterop(invocation, async (client) => ({
    topic: (await client.provider(name, { signal })).topic,
    accepted: await client.test(name, { signal }),
  }));
  const where = accepted.place === 'spool' ? `the spool; mailbox gets it later, in ${topic}` : topic;
  io.result(`accepted: receipt ${accepted.receipt}, the sample is in ${where}`, { provider: name, topic, ...accepted });
}
