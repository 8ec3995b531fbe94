/**
 * The readiness of a service for traffic, by gates with reasons.
 *
 * Contract: a closed hard gate makes `/readyz` 503; a closed soft gate leaves it 200 and is listed in `degraded`. A
 * probe for a lane (`/readyz?lane=NAME`) treats the soft gates of that lane as hard. Every gate is listed with its
 * reason.
 * Bound: gates are declared once, at start.
 */
import { assert } from '@ron/kernel';

export type GateKind = 'hard' | 'soft';

export interface GateInit {
  readonly kind: GateKind;
  /** A probe for one of these lanes treats a soft gate as hard. The name of the gate always counts as a lane. */
  readonly lanes?: readonly string[];
  /** While it is closed, work is refused with 503 `not_ready` as well. Default false: the load balancer decides. */
  readonly refuses_work?: boolean;
  /** Called at every probe: a reason closes the gate, undefined opens it. Leave out to use `open` and `close`. */
  readonly sample?: () => string | undefined;
}

export interface GateReport {
  readonly gate: string;
  readonly kind: GateKind;
  readonly open: boolean;
  readonly reason?: string;
}

export interface ReadyReport {
  readonly ready: boolean;
  readonly degraded: readonly string[];
  readonly gates: readonly GateReport[];
  /** The facts that `tell` declared. */
  readonly facts?: Readonly<Record<string, string>>;
}

export class Gate {
  readonly name: string;
  readonly kind: GateKind;
  readonly lanes: ReadonlySet<string>;
  readonly refuses_work: boolean;
  readonly #sample: (() => string | undefined) | undefined;
  #reason: string | undefined;

  constructor(name: string, init: GateInit) {
    this.name = name;
    this.kind = init.kind;
    this.lanes = new Set([name, ...(init.lanes ?? [])]);
    this.refuses_work = init.refuses_work ?? false;
    this.#sample = init.sample;
  }

  /** The reason why it is closed; undefined if it is open. */
  get reason(): string | undefined {
    return this.#sample === undefined ? this.#reason : this.#sample();
  }

  open(): void {
    this.#reason = undefined;
  }

  close(reason: string): void {
    assert(this.#sample === undefined, `gate ${this.name} is sampled, it cannot be set`);
    this.#reason = reason;
  }
}

export class Readiness {
  readonly #gates = new Map<string, Gate>();
  /** Only the gates that also refuse work, so that a request checks few or none. */
  readonly #refusing: Gate[] = [];
  readonly #facts = new Map<string, () => string>();

  gate(name: string, init: GateInit): Gate {
    assert(!this.#gates.has(name), `readiness gate ${name} is declared twice`);
    const gate = new Gate(name, init);
    this.#gates.set(name, gate);
    if (gate.refuses_work) this.#refusing.push(gate);
    return gate;
  }

  /** Adds a fact to the readiness report. It affects no gate. */
  tell(fact: string, sample: () => string): void {
    assert(!this.#facts.has(fact), `readiness fact ${fact} is declared twice`);
    this.#facts.set(fact, sample);
  }

  /** The reason why work is refused now, if any. */
  refusal(): string | undefined {
    for (const gate of this.#refusing) {
      const reason = gate.reason;
      if (reason !== undefined) return `${gate.name}: ${reason}`;
    }
    return undefined;
  }

  report(lane?: string): ReadyReport {
    let ready = true;
    const degraded: string[] = [];
    const gates: GateReport[] = [];
    for (const gate of this.#gates.values()) {
      const reason = gate.reason;
      gates.push({
        gate: gate.name,
        kind: gate.kind,
        open: reason === undefined,
        ...(reason === undefined ? {} : { reason }),
      });
      if (reason === undefined) continue;
      if (gate.kind === 'hard' || (lane !== undefined && gate.lanes.has(lane))) ready = false;
      else degraded.push(gate.name);
    }
    if (this.#facts.size === 0) return { ready, degraded, gates };
    const facts = Object.fromEntries([...this.#facts].map(([fact, sample]) => [fact, sample()]));
    return { ready, degraded, gates, facts };
  }
}
