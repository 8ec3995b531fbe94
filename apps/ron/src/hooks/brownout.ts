/** `ron hooks brownout`: shows the brownout, or sets it until a time. */
import { sched } from '@ron/kernel/core';
import {
  INTEROP_LIMITS,
  type BrownoutDto,
  type BrownoutMode,
  type BrownoutRequest,
  type UpstreamDto,
} from '@ron/proto';
import { usage } from '../args.ts';
import { columns } from '../format.ts';
import { dateOf } from '../names/show-name.ts';
import { durationArg } from '../quantity-args.ts';
import type { HooksInvocation } from './hooks-options.ts';
import { withInterop } from './interop-service.ts';

const MODES: readonly BrownoutMode[] = ['on', 'off', 'auto'];
const FOR_MS_DEFAULT = 600_000;

export async function brownout(invocation: HooksInvocation, [mode]: readonly string[]): Promise<void> {
  const { io, signal } = invocation;
  const request = mode === undefined ? undefined : requestOf(invocation, mode);
  const found = await withInterop(invocation, (client) =>
    request === undefined ? client.brownout({ signal }) : client.setBrownout(request, { signal }),
  );
  io.result(brownoutText(found), found);
}

function requestOf({ values }: HooksInvocation, text: string): BrownoutRequest {
  const mode = MODES.find((each) => each === text);
  if (mode === undefined) throw usage({ name: 'hooks' }, `brownout must be one of ${MODES.join(', ')}`);
  const { for: duration, why } = values;
  if (mode === 'auto' && duration !== undefined) throw usage({ name: 'hooks' }, '--for is only for on and off');
  const for_ms =
    duration === undefined ? FOR_MS_DEFAULT : durationArg('--for', duration, 1000, INTEROP_LIMITS.brownout_ms);
  return {
    mode,
    ...(mode !== 'auto' && { until_ms: Math.round(sched.wall_ms() + for_ms) }),
    ...(why !== undefined && { why }),
  };
}

function brownoutText({ mode, until_ms, why, active, upstreams }: BrownoutDto): string {
  const until = until_ms === undefined ? '' : ` until ${dateOf(until_ms / 1000)}`;
  const reason = why === undefined ? '' : `: ${why}`;
  return columns([
    ['mode', `${mode}${until}${reason}`],
    ['brownout', active ? 'active' : 'not active'],
    ...upstreams.map((each): [string, string] => [each.upstream, upstreamText(each)]),
  ]);
}

/** The effect of a brownout of each upstream. */
const EFFECTS: Readonly<Record<UpstreamDto['upstream'], string>> = {
  storage: '/put gets 503',
  mailbox: 'webhooks go to the spool',
  passport: '/put gets 503',
};

function upstreamText({
  upstream,
  sheds,
  error_rate,
  error_rate_limit,
  p95_ms,
  p95_limit_ms,
  breaker,
}: UpstreamDto): string {
  const percent = (part: number): string => `${(part * 100).toFixed(2)} %`;
  return [
    sheds ? `shed: ${EFFECTS[upstream]}` : 'served',
    error_rate === undefined ? 'no calls' : `${percent(error_rate)} errors (limit ${percent(error_rate_limit)})`,
    ...(p95_ms === undefined ? [] : [`p95 ${Math.round(p95_ms)} ms (limit ${Math.round(p95_limit_ms)} ms)`]),
    `breaker ${breaker}`,
  ].join(', ');
}
