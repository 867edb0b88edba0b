(** Rules for derivatives in one variable and along paths: what Influence and Optimizers use. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients.
From LAI Require Import Vectors Ghost.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Continuity.
Variable R : realFieldType.
Implicit Types (f g q r : R -> R) (x d e : R).

(* q tends to q 0 at 0. *)
Definition tends q := forall e, 0 < e -> exists2 t, 0 < t & forall h, `|h| <= t -> `|q h - q 0| <= e.
(* What holds near 0. *)
Definition near (P : R -> Prop) := exists2 t, 0 < t & forall h, `|h| <= t -> P h.

Lemma near_and P Q : near P -> near Q -> near (fun h => P h /\ Q h).
Proof.
move=> [t t0 ht] [s s0 hs]; exists (Num.min t s); first by rewrite lt_minr t0.
by move=> h; rewrite le_minr => /andP [h1 h2]; split; [apply: ht|apply: hs].
Qed.
Lemma near_imply (P Q : R -> Prop) : near P -> (forall h, P h -> Q h) -> near Q.
Proof. by move=> [t t0 ht] PQ; exists t => // h /ht /PQ. Qed.
Lemma near_all (P : R -> Prop) : (forall h, P h) -> near P.
Proof. by move=> hP; exists 1 => //; rewrite ltr01. Qed.

Lemma tends_const c : tends (fun=> c).
Proof. by move=> e e0; exists 1 => [|h _]; rewrite ?ltr01 // subrr normr0 ltW. Qed.
Lemma tends_id : tends id.
Proof. by move=> e e0; exists e => // h; rewrite subr0. Qed.
Lemma tends_add q r : tends q -> tends r -> tends (fun h => q h + r h).
Proof.
move=> hq hr e e0; have e2 : 0 < e / 2%:R by rewrite divr_gt0 ?ltr0n.
have [t t0 ht] := near_and (hq _ e2) (hr _ e2); exists t => // h /ht [h1 h2].
rewrite [e]splitr opprD addrACA; apply: le_trans (ler_norm_add _ _) (ler_add h1 h2).
Qed.
Lemma tends_near q r : near (fun h => q h = r h) -> tends q -> tends r.
Proof.
move=> same hq e e0; have [s s0 hs] := same.
have [t t0 ht] := near_and same (hq e e0); exists t => // h /ht [<- hh].
by rewrite -(hs 0) // normr0 ltW.
Qed.
Lemma tends_mul q r : tends q -> tends r -> tends (fun h => q h * r h).
Proof.
move=> hq hr e e0; set K := `|q 0| + `|r 0| + 1.
have K0 : 0 < K by rewrite ltr_spaddr ?ltr01 // addr_ge0.
pose s := Num.min 1 (e / K); have s0 : 0 < s by rewrite lt_minr ltr01 divr_gt0.
have [t t0 ht] := near_and (hq _ s0) (hr _ s0); exists t => // h /ht [h1 h2].
have s1 : s <= 1 by rewrite le_minl lexx.
have sK : s * K <= e by rewrite -ler_pdivl_mulr // le_minl lexx orbT.
have -> : q h * r h - q 0 * r 0 = (q h - q 0) * (r h - r 0) + (q 0 * (r h - r 0) + (q h - q 0) * r 0) by ring.
apply: le_trans sK; apply: le_trans (ler_norm_add _ _) _; rewrite [s * K]mulrDr mulr1 addrC.
apply: ler_add; last by rewrite normrM -[s]mulr1; apply: ler_pmul => //; apply: le_trans s1.
apply: le_trans (ler_norm_add _ _) _; rewrite !normrM mulrDr [s * `|q 0|]mulrC.
by apply: ler_add; [apply: ler_wpmul2l|apply: ler_wpmul2r].
Qed.
Lemma tends_away q : tends q -> q 0 != 0 -> near (fun h => `|q 0| / 2%:R <= `|q h|).
Proof.
move=> hq q0; have [|t t0 ht] := hq (`|q 0| / 2%:R); first by rewrite divr_gt0 ?ltr0n ?normr_gt0.
exists t => // h /ht hh; have := ler_dist_dist (q 0) (q h); rewrite distrC in hh.
move=> /le_trans /(_ hh) /(le_trans (ler_norm _)).
by rewrite ler_subl_addr -ler_subl_addl {1}[`|q 0|]splitr addrK.
Qed.
Lemma tends_inv q : tends q -> q 0 != 0 -> tends (fun h => (q h)^-1).
Proof.
move=> hq q0 e e0; have n0 : 0 < `|q 0| by rewrite normr_gt0.
have [|t t0 ht] := near_and (tends_away hq q0) (hq (e * (`|q 0| / 2%:R * `|q 0|)) _).
  by rewrite !mulr_gt0 ?invr_gt0 ?ltr0n.
exists t => // h /ht [h1 h2]; have qh : 0 < `|q h| by apply: lt_le_trans h1; rewrite divr_gt0 ?ltr0n.
have qh0 : q h != 0 by rewrite -normr_gt0.
have -> : (q h)^-1 - (q 0)^-1 = - ((q h - q 0) / (q h * q 0)) by field; rewrite q0 qh0.
rewrite normrN normf_div normrM ler_pdivr_mulr ?mulr_gt0 //; apply: le_trans h2 _.
by rewrite ler_wpmul2l ?(ltW e0) // ler_wpmul2r.
Qed.

(* A derivative is the value at 0 of a continuous quotient. *)
Lemma derivative_quotient f x d q :
  near (fun h => f (x + h) - f x = q h * h) -> tends q -> q 0 = d -> derivative f x d.
Proof.
move=> hf hq <- e e0; have [t t0 ht] := near_and hf (hq e e0); exists t => // h /ht [-> hh].
by rewrite -mulrBl normrM ler_wpmul2r.
Qed.
Lemma quotient_derivative f x d : derivative f x d ->
  exists q, [/\ forall h, f (x + h) - f x = q h * h, tends q & q 0 = d].
Proof.
move=> hf; exists (fun h => if h == 0 then d else (f (x + h) - f x) / h); rewrite eqxx; split=> // [h|e e0].
  by case: eqP => [->|/eqP h0]; rewrite ?addr0 ?subrr ?mulr0 // divfK.
have [t t0 ht] := hf e e0; exists t => // h /ht; rewrite eqxx; case: eqP => [-> _|/eqP h0 hh];
  first by rewrite subrr normr0 ltW.
rewrite -(ler_pmul2r (x := `|h|)) ?normr_gt0 // -normrM mulrBl divfK //.
Qed.

Lemma derivative_near f g x d : near (fun h => f (x + h) = g (x + h)) -> derivative f x d -> derivative g x d.
Proof.
move=> same hf e e0; have [s s0 hs] := same; have f0 : f x = g x by rewrite -(addr0 x); apply: hs;
  rewrite normr0 ltW.
by have [t t0 ht] := near_and same (hf e e0); exists t => // h /ht [<-]; rewrite f0.
Qed.
Lemma derivative_unique f x c d : derivative f x c -> derivative f x d -> c = d.
Proof.
move=> hc hd; apply/eqP; rewrite -subr_eq0 -normr_le0; apply/ler_addgt0Pr => e e0; rewrite add0r.
have e2 : 0 < e / 2%:R by rewrite divr_gt0 ?ltr0n.
have [t t0 ht] := near_and (hc _ e2) (hd _ e2); have [|h1 h2] := ht t; first by rewrite gtr0_norm.
rewrite -(ler_pmul2r t0) -{1}(gtr0_norm t0) -normrM.
have -> : (c - d) * t = (f (x + t) - f x - d * t) - (f (x + t) - f x - c * t) by ring.
apply: le_trans (ler_norm_sub _ _) _; apply: le_trans (ler_add h2 h1) _.
by rewrite gtr0_norm // -mulrDl -splitr.
Qed.
Lemma derivative_const c x : derivative (fun=> c) x 0.
Proof.
by apply: (derivative_quotient (q := fun=> 0)) (tends_const _) _ => //; apply: near_all => h;
  rewrite subrr mul0r.
Qed.
Lemma derivative_affine b c x : derivative (fun y => b + y * c) x c.
Proof.
by apply: (derivative_quotient (q := fun=> c)) (tends_const _) _ => //; apply: near_all => h; ring.
Qed.
Lemma derivative_mul f g x c d : derivative f x c -> derivative g x d ->
  derivative (fun y => f y * g y) x (c * g x + f x * d).
Proof.
move=> /quotient_derivative [q [hq tq <-]] /quotient_derivative [r [hr tr <-]].
apply: (derivative_quotient (q := fun h => q h * g x + (f x + q h * h) * r h)) => [||].
- apply: near_all => h; have fh : f (x + h) = f x + q h * h by rewrite -hq addrCA subrr addr0.
  have gh : g (x + h) = g x + r h * h by rewrite -hr addrCA subrr addr0.
  by rewrite fh gh; ring.
- have tC := tends_const; apply: tends_add; apply: tends_mul => //.
  by apply: tends_add => //; apply: tends_mul => //; apply: tends_id.
by rewrite mulr0 addr0.
Qed.
Lemma derivative_scale f x c d : derivative f x d -> derivative (fun y => c * f y) x (c * d).
Proof. by move=> hf; have := derivative_mul (derivative_const c x) hf; rewrite mul0r add0r. Qed.
Lemma derivative_add f g x c d :
  derivative f x c -> derivative g x d -> derivative (fun y => f y + g y) x (c + d).
Proof.
move=> /quotient_derivative [q [hq tq <-]] /quotient_derivative [r [hr tr <-]].
apply: (derivative_quotient (q := fun h => q h + r h)) => //; last exact: tends_add.
by apply: near_all => h; rewrite mulrDl -hq -hr opprD addrACA.
Qed.
Lemma derivative_sum I (s : seq I) (F : I -> R -> R) x (d : I -> R) : (forall i, derivative (F i) x (d i)) ->
  derivative (fun y => \sum_(i <- s) F i y) x (\sum_(i <- s) d i).
Proof.
move=> hF; elim: s => [|i s IH].
  by rewrite big_nil; apply: derivative_near (derivative_const 0 x); apply: near_all => h; rewrite big_nil.
rewrite big_cons; apply: derivative_near (derivative_add (hF i) IH).
by apply: near_all => h; rewrite big_cons.
Qed.
Lemma derivative_continuous f x d : derivative f x d -> tends (fun h => f (x + h)).
Proof.
move=> /quotient_derivative [q [hq tq _]].
apply: (tends_near (q := fun h => f x + q h * h)); first by apply: near_all => h;
  rewrite -hq addrCA subrr addr0.
by apply: tends_add; [apply: tends_const|apply: tends_mul => //; apply: tends_id].
Qed.
Lemma derivative_inv f x d :
  f x != 0 -> derivative f x d -> derivative (fun y => (f y)^-1) x (- d / f x ^+ 2).
Proof.
move=> f0 hf; have tf := derivative_continuous hf; have := hf => /quotient_derivative [q [hq tq <-]].
have f00 : f (x + 0) != 0 by rewrite addr0.
apply: (derivative_quotient (q := fun h => - q h * ((f (x + h))^-1 * (f x)^-1))) => [||]; last first.
- by rewrite addr0 expr2 invfM.
- apply: tends_mul; last by apply: tends_mul; [apply: tends_inv|apply: tends_const].
  apply: (tends_near (q := fun h => -1 * q h)); first by apply: near_all => h; rewrite mulN1r.
  by apply: tends_mul => //; apply: tends_const.
apply: near_imply (tends_away tf f00) _ => h hh.
have fh : f (x + h) != 0 by rewrite -normr_gt0; apply: lt_le_trans hh; rewrite divr_gt0 ?ltr0n ?normr_gt0.
rewrite (_ : _ - _ = - (f (x + h) - f x) / (f (x + h) * f x)); last by field; rewrite f0 fh.
by rewrite hq; field; rewrite f0 fh.
Qed.
Lemma derivative_comp f g x c d :
  derivative f (g x) c -> derivative g x d -> derivative (fun y => f (g y)) x (c * d).
Proof.
move=> hf hg; have tg := derivative_continuous hg.
move: hf => /quotient_derivative [q [hq tq <-]]; move: hg => /quotient_derivative [r [hr tr <-]].
apply: (derivative_quotient (q := fun h => q (r h * h) * r h)) => [||].
- by apply: near_all => h; have -> : g (x + h) = g x + r h * h by [rewrite -hr addrCA subrr addr0];
  rewrite hq mulrA.
- apply: tends_mul => // e e0; have [t t0 ht] := tq e e0.
  have [s s0 hs] := tg t t0; exists s => // h /hs; rewrite addr0 hr mulr0 => hh; exact: ht.
by rewrite mulr0.
Qed.

(* A matrix's path with velocity, entry by entry, and a function of it. *)
Lemma velocity_gradient p (path : R -> 'cV[R]_p) x (u : 'cV[R]_p) (f : 'cV[R]_p -> R) G :
  gradient f (path x) G -> velocity path x u -> derivative (fun y => f (path y)) x (dot G u).
Proof.
have size_dot (A B : 'cV[R]_p) : `|dot A B| <= size1 A * size1 B.
  rewrite /dot /size1; under eq_bigr do rewrite big_ord1; under [X in _ <= X * _]eq_bigr do rewrite big_ord1.
  under [X in _ <= _ * X]eq_bigr do rewrite big_ord1.
  apply: le_trans (ler_norm_sum _ _ _) _; rewrite mulr_suml; apply: ler_sum => i _.
  rewrite normrM; apply: ler_wpmul2l => //; rewrite [X in _ <= X](bigD1 i) //= ler_addl.
  exact: sumr_ge0.
move=> hf hp e e0; set K := size1 G + 1; set U := size1 u + 1.
have K0 : 0 < K by rewrite ltr_spaddr ?ltr01 ?size1_ge0.
have U0 : 0 < U by rewrite ltr_spaddr ?ltr01 ?size1_ge0.
have [|t t0 ht] := hf (e / 2%:R / U); first by rewrite !divr_gt0 ?ltr0n.
have [|s s0 hs] := hp (Num.min 1 (e / 2%:R / K)); first by rewrite lt_minr ltr01 !divr_gt0 ?ltr0n.
exists (Num.min s (t / U)) => [|h]; first by rewrite lt_minr s0 divr_gt0.
rewrite le_minr => /andP [/hs]; rewrite ler_pdivl_mulr // => hh hU.
set D := path (x + h) - path x; set d := D - h *: u in hh.
have d1 : size1 d <= `|h|.
  by apply: le_trans hh _; rewrite ler_pimull // le_minl lexx.
have d2 : size1 d <= e / 2%:R / K * `|h|.
  by apply: le_trans hh _; rewrite ler_wpmul2r // le_minl lexx orbT.
have D1 : size1 D <= `|h| * U.
  rewrite -(subrK (h *: u) D) -/d mulrDr mulr1 addrC -size1Z; apply: le_trans (size1_triangle _ _) _.
  by rewrite ler_add2l.
have -> : path (x + h) = path x + D by rewrite /D addrCA subrr addr0.
have -> : f (path x + D) - f (path x) - dot G u * h = (f (path x + D) - f (path x) - dot G D) + dot G d.
  by have -> : dot G d = dot G D - h * dot G u by [rewrite [LHS]dotBr dotZr]; ring.
rewrite [e]splitr mulrDl; apply: le_trans (ler_norm_add _ _) (ler_add _ _).
  apply: le_trans (ht _ (le_trans D1 hU)) _; rewrite mulrAC ler_pdivr_mulr // -[X in _ <= X]mulrA.
  by rewrite ler_wpmul2l // ltW // divr_gt0 ?ltr0n.
apply: le_trans (size_dot _ _) _; apply: (@le_trans _ _ (K * size1 d)).
  by rewrite ler_wpmul2r ?size1_ge0 // ler_addl ler01.
apply: le_trans (ler_wpmul2l (ltW K0) d2) _; rewrite mulrA [K * _]mulrC divfK ?gt_eqF //.
Qed.
Lemma velocity_line p (b u : 'cV[R]_p) x : velocity (fun y => b + y *: u) x u.
Proof.
move=> e e0; exists 1 => [|h _]; rewrite ?ltr01 //.
have -> : b + (x + h) *: u - (b + x *: u) - h *: u = 0.
  by rewrite scalerDl opprD addrACA subrr add0r [x *: u + _]addrC addrK subrr.
by rewrite size1_0 mulr_ge0 ?(ltW e0).
Qed.
Lemma derivative_line p (f : 'cV[R]_p -> R) theta G u :
  gradient f theta G -> derivative (fun y => f (theta + y *: u)) 0 (dot G u).
Proof. by move=> hf; apply: velocity_gradient (velocity_line _ _ _); rewrite scale0r addr0. Qed.
Lemma velocity_entries p (path : R -> 'cV[R]_p) x (u : 'cV[R]_p) :
  (forall i, derivative (fun y => path y i 0) x (u i 0)) -> velocity path x u.
Proof.
move=> hp e e0; have p0 : (0 : R) < p%:R + 1 by rewrite ltr_spaddr ?ltr01 ?ler0n.
have small : 0 < e / (p%:R + 1) by rewrite divr_gt0.
have [t t0 ht] : near (fun h => forall i, i \in enum 'I_p ->
    `|path (x + h) i 0 - path x i 0 - u i 0 * h| <= e / (p%:R + 1) * `|h|).
  elim: (enum 'I_p) => [|i s IH]; first by apply: near_all.
  apply: near_imply (near_and (hp i _ small) IH) _ => h [h1 h2] k.
  by rewrite in_cons => /orP [/eqP ->|/h2].
exists t => // h /ht all; apply: (@le_trans _ _ (\sum_(i < p) e / (p%:R + 1) * `|h|)).
  apply: ler_sum => i _; rewrite big_ord1 !mxE [h * _]mulrC; apply: all; exact: mem_enum.
rewrite sumr_const card_ord -mulr_natl mulrA ler_wpmul2r // mulrCA ler_pimulr ?(ltW e0) //.
by rewrite ler_pdivr_mulr // mul1r ler_addl ler01.
Qed.
End Continuity.

Lemma derivative_sqrt (R : rcfType) (f : R -> R) x d : 0 < f x -> derivative f x d ->
  derivative (fun y => Num.sqrt (f y)) x (d / (2%:R * Num.sqrt (f x))).
Proof.
move=> f0 hf; have tf := derivative_continuous hf; have := hf => /quotient_derivative [q [hq tq <-]].
set s := fun h => Num.sqrt (f (x + h)); set r := Num.sqrt (f x).
have r0 : 0 < r by rewrite sqrtr_gt0.
have pos : near (fun h => 0 < f (x + h)).
  have [t t0 ht] := tf (f x / 2%:R) (divr_gt0 f0 (ltr0Sn _ _)); exists t => // h /ht.
  rewrite addr0 distrC => /(le_trans (ler_norm _)); rewrite ler_subl_addr -ler_subl_addl {1}[f x]splitr addrK.
  by apply: lt_le_trans; rewrite divr_gt0 ?ltr0n.
have diff h : 0 < f (x + h) -> (s h - r) * (s h + r) = f (x + h) - f x.
  by move=> fh; rewrite -subr_sqr !sqr_sqrtr // ltW.
have s0 h : 0 <= s h by exact: sqrtr_ge0.
have sr h : 0 < s h + r by rewrite ltr_paddl.
have ts : tends s.
  move=> e e0; have [t t0 ht] := near_and pos (tf (e * r) (mulr_gt0 e0 r0)); exists t => // h /ht [fh].
  rewrite addr0 -(diff _ fh) normrM => hh; have -> : s 0 = r by rewrite /s addr0.
  rewrite -(ler_pmul2r r0); apply: le_trans hh; apply: ler_wpmul2l => //.
  by rewrite ger0_norm ?(ltW (sr h)) // ler_addr.
apply: (derivative_quotient (q := fun h => q h * (s h + r)^-1)) => [||]; last first.
- by rewrite /s addr0 -/r mulr2n mulrDl mul1r.
- apply: tends_mul => //; apply: tends_inv; last by rewrite gt_eqF.
  by apply: tends_add => //; apply: tends_const.
apply: near_imply pos _ => h fh; rewrite mulrAC -hq -diff // mulfK // gt_eqF //.
Qed.

Lemma derivative_as (R : realFieldType) (f g : R -> R) x c d :
  derivative f x c -> (forall y, f y = g y) -> c = d -> derivative g x d.
Proof. by move=> hf fg <-; apply: derivative_near hf; apply: near_all => h. Qed.
