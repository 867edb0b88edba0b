(** What Ghost costs beside LAI on a chain of dense layers, of widths d 0, ..., d L. *)
From mathcomp Require Import all_ssreflect.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* Multiply-adds of one forward pass, and of LAI. *)
Definition forward L (d : nat -> nat) := \sum_(l < L) d l * d l.+1.

(* Ghost goes back, too, through every layer but the first. *)
Definition ghost_passes L (d : nat -> nat) := forward L d + (forward L d - d 0 * d 1).

(* Numbers that each keeps of a sample: inputs and output gradients; inputs and the last output gradient. *)
Definition ghost_cache L (d : nat -> nat) := \sum_(l < L) (d l + d l.+1).
Definition lai_cache L (d : nat -> nat) := \sum_(l < L) d l + d L.

(** The cache's ratio is below 2. *)
(* Implements: cost-ratio *)
Definition cache_below_two := forall L (d : nat -> nat),
  (* meaning *) (forall l, 0 < d l) ->
  ghost_cache L d < 2 * lai_cache L d.

(** So is that of the passes. *)
(* Implements: cost-ratio *)
Definition passes_below_two := forall L (d : nat -> nat),
  (* meaning *) (forall l, 0 < d l) ->
  (* meaning *) 0 < L ->
  ghost_passes L d < 2 * forward L d.

(** With one width for all layers the cache's ratio is 2 L / (L + 1). *)
(* Implements: cost-ratio *)
Definition equal_caches := forall L w,
  ghost_cache L (fun=> w) * L.+1 = lai_cache L (fun=> w) * (2 * L).

(** That of the passes is (2 L - 1) / L. *)
(* Implements: cost-ratio *)
Definition equal_passes := forall L w,
  (* meaning *) 0 < L ->
  ghost_passes L (fun=> w) * L = forward L (fun=> w) * (2 * L).-1.

(** No chain, of any depth and any widths, costs Ghost k times as much as LAI for a k of 2 or more, in numbers
    kept or in passes; k = 10 is the printed order of magnitude. *)
(* Refutes: order-of-magnitude *)
Definition no_order_of_magnitude := forall L (d : nat -> nat) k,
  (* meaning *) (forall l, 0 < d l) ->
  (* meaning *) 0 < L ->
  (* meaning *) 1 < k ->
  ghost_cache L d < k * lai_cache L d /\ ghost_passes L d < k * forward L d.
