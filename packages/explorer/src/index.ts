export * from './assert.ts';
export { assertReductionsAgree, endings } from './cross-check.ts';
export { explore, replay } from './explore.ts';
export * from './model.ts';
export * from './mutant.ts';
