(** Gradients, over any ordered field. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The sum of the sizes of all entries. *)
Definition size1 (R : numDomainType) m n (D : 'M[R]_(m, n)) : R := \sum_i \sum_k `|D i k|.

(* G is the gradient of f at X: f (X + D) = f X + <G, D> + o(D). On the reals this is Frechet's derivative. *)
Definition gradient (R : realFieldType) m n (f : 'M[R]_(m, n) -> R) X G :=
  forall e, 0 < e -> exists2 t, 0 < t &
  forall D, size1 D <= t -> `|f (X + D) - f X - dot G D| <= e * size1 D.

(* d is the derivative of f at x. *)
Definition derivative (R : realFieldType) (f : R -> R) x d :=
  forall e, 0 < e -> exists2 t, 0 < t & forall h, `|h| <= t -> `|f (x + h) - f x - d * h| <= e * `|h|.

(* J is the Jacobian of F at x. *)
Definition jacobian (R : realFieldType) p q (F : 'cV[R]_p -> 'cV[R]_q) x (J : 'M_(q, p)) :=
  forall e, 0 < e -> exists2 t, 0 < t & forall D, size1 D <= t ->
    size1 (F (x + D) - F x - J *m D) <= e * size1 D.

(* A path is continuous at x; it has velocity u there. *)
Definition continuous (R : realFieldType) p (path : R -> 'cV[R]_p) x :=
  forall e, 0 < e -> exists2 t, 0 < t & forall h, `|h| <= t -> size1 (path (x + h) - path x) <= e.
Definition velocity (R : realFieldType) p (path : R -> 'cV[R]_p) x (u : 'cV[R]_p) :=
  forall e, 0 < e -> exists2 t, 0 < t & forall h, `|h| <= t ->
    size1 (path (x + h) - path x - h *: u) <= e * `|h|.
