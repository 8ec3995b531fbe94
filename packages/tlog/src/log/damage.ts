/** What an audit found to be wrong: where, and what. */
export interface Damage {
  /** The resource or file. */
  readonly where: string;
  readonly what: string;
}

/** Thrown inside of an audit to end it. */
export class DamageFound extends Error {
  readonly damage: Damage;

  constructor(where: string, what: string) {
    super(`${where}: ${what}`);
    this.damage = { where, what };
  }
}
