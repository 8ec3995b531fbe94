/**
 * Environment variables that hold a secret of ron.
 *
 * Contract: only kms receives them from `ron up`, and a process removes them from its own environment once it has read them.
 */
export const SECRET_VARIABLES = ['RON_KEK', 'RON_PIN'] as const;

type Variables = Record<string, string | undefined>;

/** A copy of the environment; the secrets are removed from the original, so that neither threads nor reports contain them. */
export function takeEnvironment(env: Variables): Readonly<Variables> {
  const taken = { ...env };
  for (const name of SECRET_VARIABLES) delete env[name];
  return taken;
}
