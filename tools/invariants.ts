/**
 * Traces the rules of each service's concurrency model to the code that enforces them and the tests that prove them.
 *
 * Contract: a service declares its rules in `services/NAME/src/invariants.ts`, one line each. Source and tests carry the
 * tag of a rule in a comment or a test name: `[NAME I-n]`, with the name of the service and the number of the rule. A tag
 * in a test, a model or a file of type assertions is a proof; a tag anywhere else marks an enforcement. A declared rule
 * needs both. A tag that matches no declared rule is a problem.
 * Bound: reads each source file once, one at a time.
 *
 *     const trace = await traceInvariants(root);
 *     trace.problems; // one line for each rule without a proof
 */
import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

export interface Rule {
  readonly service: string;
  /** `I-7`. */
  readonly id: string;
  /** One line. */
  readonly text: string;
  /** Files from the project's root, sorted. */
  readonly enforced: string[];
  readonly proven: string[];
}

export interface Trace {
  readonly rules: readonly Rule[];
  /** One line each, empty when every tag has a rule and every rule an enforcement and a proof. */
  readonly problems: readonly string[];
}

const SOURCES = '{packages,services,apps,tools,bench}/**/*.{ts,js}';
const DECLARATIONS = 'services/*/src/invariants.ts';
const PROOF = /\.(?:test|model|types)\.ts$|\/test\//;
/** Matches malformed tags too, so that a typo is reported and not ignored. */
const TAG = /\[(?<service>[a-z]+) (?<id>I-?\d[^\]\n]*)\]/g;
const ID = /^I-[1-9]\d*$/;

export async function traceInvariants(root: string): Promise<Trace> {
  const rules = await declaredRules(root);
  const byTag = new Map(rules.map((rule) => [tagOf(rule), rule]));
  const problems: string[] = [];
  for (const file of globSync(SOURCES, { cwd: root, exclude: ['**/node_modules/**'] }).toSorted()) {
    const text = await readFile(join(root, file), 'utf8');
    for (const { 0: tag, index } of text.matchAll(TAG)) {
      const rule = byTag.get(tag);
      if (rule === undefined) problems.push(`${file}:${lineAt(text, index)}: ${tag} names no declared rule`);
      else addOnce(PROOF.test(file) ? rule.proven : rule.enforced, file);
    }
  }
  for (const rule of rules) {
    const tag = tagOf(rule);
    if (rule.enforced.length === 0) problems.push(`${tag} has no enforcement: tag the code that keeps "${rule.text}"`);
    if (rule.proven.length === 0) problems.push(`${tag} has no proof: tag or write the test of "${rule.text}"`);
  }
  return { rules, problems };
}

/** One table for each service: rule, text, enforcement, proof. */
export function renderInvariants({ rules }: Trace): string {
  if (rules.length === 0) return 'No service declares anything yet.';
  const services = [...new Set(rules.map(({ service }) => service))];
  return services.map((service) => renderService(service, rules)).join('\n\n');
}

function renderService(service: string, rules: readonly Rule[]): string {
  const rows = rules
    .filter((rule) => rule.service === service)
    .map(({ id, text, enforced, proven }) => `| ${id} | ${text} | ${links(enforced)} | ${links(proven)} |`);
  return [`## ${service}`, '', '| Rule | Text | Enforced in | Proven by |', '| --- | --- | --- | --- |', ...rows].join(
    '\n',
  );
}

async function declaredRules(root: string): Promise<Rule[]> {
  const rules: Rule[] = [];
  for (const file of globSync(DECLARATIONS, { cwd: root }).toSorted()) {
    const { invariants }: { invariants?: unknown } = await import(pathToFileURL(join(root, file)).href);
    if (!isRuleTable(invariants)) throw new Error(`${file} exports no invariants: { 'I-1': 'one line', ... }`);
    const service = file.split('/')[1]!;
    for (const [id, text] of Object.entries(invariants)) rules.push({ service, id, text, enforced: [], proven: [] });
  }
  return rules;
}

function isRuleTable(value: unknown): value is Record<string, string> {
  if (typeof value !== 'object' || value === null || Object.keys(value).length === 0) return false;
  return Object.entries(value).every(([id, text]) => ID.test(id) && typeof text === 'string' && !/[|\n]/.test(text));
}

const tagOf = ({ service, id }: Rule): string => `[${service} ${id}]`;

function addOnce(files: string[], file: string): void {
  if (files.at(-1) !== file) files.push(file);
}

const lineAt = (text: string, index: number): number => text.slice(0, index).split('\n').length;

/** Labels without the folders that every path has: `kernel/mpsc.ts`. */
const links = (files: readonly string[]): string =>
  files
    .map((file) => `[${file.replace(/^(?:packages|services|apps)\//, '').replace('/src/', '/')}](../${file})`)
    .join('<br>');
