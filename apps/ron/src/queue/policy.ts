/** `ron queue policy`: prints and changes the limits of a topic. */
import { formatDuration, parseDuration_ms, parseSize_bytes } from '@ron/config/units';
import type { MailboxClient } from '@ron/client';
import { isRonError } from '@ron/kernel/core';
import type { TopicDto, TopicPolicy } from '@ron/proto';
import { usage } from '../args.ts';
import { columns, humanSize } from '../format.ts';
import { topicArg, withMailbox } from './mailbox-service.ts';
import type { QueueInvocation } from './queue-options.ts';

export async function policy(invocation: QueueInvocation, [name]: readonly string[]): Promise<void> {
  const { io, signal, values } = invocation;
  const topic = topicArg(name!);
  const wanted = (values.set ?? []).map(settingOf);
  const found = await withMailbox(invocation, (client) =>
    wanted.length === 0 ? client.topic(topic, { signal }) : change(client, topic, wanted, signal),
  );
  io.result(columns([['topic', topic], ...policyRows(found)]), {
    topic,
    policy: found.policy,
    policy_set: found.policy_set,
  });
}

/** `undefined` stands for the configured value. */
type Setting = readonly [keyof TopicPolicy, number | undefined];

/** Keeps the other limits that were set for the topic. */
async function change(
  client: MailboxClient,
  topic: string,
  wanted: readonly Setting[],
  signal: AbortSignal,
): Promise<TopicDto> {
  const before = await client.topic(topic, { signal }).catch((error: unknown) => {
    if (isRonError(error, 'not_found')) return undefined;
    throw error;
  });
  const kept = (before?.policy_set ?? []).map((key): Setting => [key, before!.policy[key]]);
  const fields = [...new Map([...kept, ...wanted])].filter(([, value]) => value !== undefined);
  return await client.setPolicy(topic, Object.fromEntries(fields), { signal });
}

interface Field {
  /** The name for `--set`, without the unit. */
  readonly name: string;
  readonly show: (value: number) => string;
  readonly parse: (text: string) => number | undefined;
}

const count = (text: string): number | undefined => (/^\d{1,15}$/.test(text) ? Number(text) : undefined);
const COUNT: Omit<Field, 'name'> = { show: String, parse: count };
const SIZE: Omit<Field, 'name'> = { show: humanSize, parse: parseSize_bytes };
const TIME: Omit<Field, 'name'> = { show: formatDuration, parse: parseDuration_ms };

const FIELDS: Readonly<Record<keyof TopicPolicy, Field>> = {
  max_messages: { name: 'max_messages', ...COUNT },
  max_bytes: { name: 'max_bytes', ...SIZE },
  max_age_ms: { name: 'max_age', ...TIME },
  max_deliveries: { name: 'max_deliveries', ...COUNT },
  window_ms: { name: 'window', ...TIME },
  dead_max_age_ms: { name: 'dead_max_age', ...TIME },
  dead_max_messages: { name: 'dead_max_messages', ...COUNT },
  dead_max_bytes: { name: 'dead_max_bytes', ...SIZE },
};

const POLICY_KEYS = Object.keys(FIELDS) as (keyof TopicPolicy)[];

export function policyRows({ policy: limits, policy_set }: TopicDto): [string, string][] {
  return POLICY_KEYS.map((key) => {
    const { name, show } = FIELDS[key];
    return [name, `${show(limits[key])}${policy_set.includes(key) ? ', set for this topic' : ''}`];
  });
}

function settingOf(text: string): Setting {
  const [name, value = ''] = text.split(/=(.*)/s);
  const key = POLICY_KEYS.find((each) => FIELDS[each].name === name);
  const known = POLICY_KEYS.map((each) => FIELDS[each].name).join(', ');
  if (key === undefined) throw usage({ name: 'queue' }, `--set must be NAME=VALUE with one of ${known}`);
  if (value === 'default') return [key, undefined];
  const parsed = FIELDS[key].parse(value);
  if (parsed === undefined)
    throw usage({ name: 'queue' }, `--set ${name}: ${JSON.stringify(value)} is not a valid value`);
  return [key, parsed];
}
