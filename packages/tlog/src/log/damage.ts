/** The first damage that an audit found. */
export interface Damage {
  /** The resource or file. */
  readonly where: string;
  readonly what: string;
}

/** Ends an audit with the damage that it found. */
export class DamageError extends Error {
  readonly damage: Damage;

  constructor(where: string, what: string) {
    super(`${where}: ${what}`);
    this.damage = { where, what };
  }
}
